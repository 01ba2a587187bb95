"""State of the programs of one attempt in launcher 0, and the messages to all that follow from it. Pure.

- Programs that speak with their launchers start together or not at all: a process that is missing, or runs something
  else, is named to all.
- The first end ends all. A connection that breaks, or is silent for longer than the heartbeat, is an end, too.
- No call looks at all processes, since there may be ten thousand.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

from tpujob_contract.exit_codes import FATAL
from tpujob_contract.process_ids import process_name
from tpujob_contract.reports.first_end import first_of
from tpujob_contract.reports.progress_state import ProgressState
from tpujob_launcher.peers import verdict
from tpujob_launcher.peers.messages import (
    ASKED,
    END,
    FAILED,
    MET,
    REFUSED,
    STALLED,
    End,
    Message,
    known_of,
    values_of,
)
from tpujob_launcher.peers.verdict import ENDING, Program

BEATS = 5
"""Signs of life within one heartbeat limit."""
HEARTBEAT_SECONDS = 30.0
"""Silence after which a launcher counts as lost, unless its program states another limit; none is named before."""
UNSPOKEN_SECONDS = 120.0
"""The same for a program that does not speak, and cannot state how long a network outage it survives: JAX survives
up to 100 s."""
STRAGGLER_BEATS = 2
"""Without progress on process 0: by the second of them all others have reported their steps."""
CONFIGURATION_ERROR, TRAINER_ERROR = "ConfigurationError", "TrainerError"
"""The trainer's errors for processes that run different things: of pods that started together, and of others."""
BACK_SECONDS = 3.0
"""Time for a launcher whose connection broke to reconnect: it tries once a second."""


def named_after_seconds(heartbeat_seconds: float) -> float:
    """Silence after which a launcher is named: with a long heartbeat, a healthy one sends nothing for minutes."""
    return max(HEARTBEAT_SECONDS, 2 * heartbeat_seconds / BEATS)


class Watch:
    """State of one attempt in these containers. `now` is monotonic, `at` Unix time, both in seconds."""

    def __init__(self, attempt: int, hosts: Sequence[str], positions: Sequence[str], startup_seconds: float) -> None:
        """Starts without any program.

        Args:
            attempt: Its number.
            hosts: The host of each process; the caller keeps the list and fills it in; "" while a host is not known.
            positions: Slice and host of each process, as text.
            startup_seconds: How long programs wait for one another.
        """
        self.attempt = attempt
        self.heartbeat_seconds = self.limit_seconds = HEARTBEAT_SECONDS
        """Heartbeat limit of programs that speak; silence after which a launcher counts as lost."""
        self.end: Optional[End] = None
        """The first end that is known."""
        self.asked = ""
        """Which process was asked to stop first, as in "SIGTERM at process 1 on host h"."""
        self.has_met = False
        self.is_difference_final = True
        """Whether programs that run different things would do so in new pods, too."""
        self._hosts = hosts
        self._positions = positions
        self._startup_seconds = startup_seconds
        self._here: Dict[int, Program] = {}
        self._deadline: Optional[float] = None
        self._is_refused = False
        self._ends: Dict[int, End] = {}
        self._done: Set[int] = set()
        """Processes that ended in order, or were lost with others: no further message of them counts."""
        self._announced: List[Message] = []
        self._states: Dict[int, ProgressState] = {}
        self._beat_at: Dict[int, float] = {}
        self._heard_at: Dict[int, float] = {}
        """Of launchers that are neither gone nor lost by silence; ordered, the longest silent first."""
        self._named: Set[int] = set()
        """Silent processes that have been named."""
        self._given_up: List[int] = []
        """Processes lost by silence that `given_up` has not returned yet."""
        self._broken: Dict[int, float] = {}
        """When connections broke; ordered."""

    @property
    def announcements(self) -> List[Message]:
        """The last message of each kind, for a launcher that connects later."""
        return list({message[0]: message for message in self._announced}.values())

    @property
    def here(self) -> int:
        """How many programs have joined."""
        return len(self._here)

    def name(self, process: int) -> str:
        """A process by its number and host."""
        return process_name(process, self._hosts[process] if 0 <= process < len(self._hosts) else "")

    def heard(self, process: int, now: float) -> None:
        """A launcher has sent something."""
        self._heard_at.pop(process, None)
        self._heard_at[process] = now
        self._named.discard(process)
        self._broken.pop(process, None)

    def joined(self, process: int, values: Mapping[str, Any], now: float, nonce: str) -> List[Message]:
        """A program waits for the others.

        Args:
            process: Its process.
            values: What it reports about itself.
            now: Monotonic.
            nonce: Sent to all if this program is the last to join.
        """
        versions = values.get("versions")
        self._here[process] = Program(
            process,
            self._hosts[process],
            str(values.get("configuration")),
            {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {},
        )
        own = self._here.get(0)
        if self.has_met or self._is_refused:
            return []
        self._deadline = self._deadline or now + self._startup_seconds
        if own is None:
            return []
        for one in [self._here[process]] if process else [self._here[i] for i in sorted(self._here)]:
            if words := verdict.disagreement(one, own):
                return self.refuse(words)
        if len(self._here) < len(self._positions):
            return []
        self.has_met = True
        # From here on the heartbeat limit of the programs applies; so far signs of life came at a longer interval.
        self._heard_at = dict.fromkeys(self._heard_at, now)
        self._deadline = None
        return self._announce(MET, {"nonce": nonce, "lead": self._hosts[0]})

    def refuse(self, words: str) -> List[Message]:
        """A process cannot join, for the reason in `words`: programs that wait for it end."""
        if self.has_met or self._is_refused:
            return []
        return self._refuse(CONFIGURATION_ERROR if self.is_difference_final else TRAINER_ERROR, words)

    def progressed(self, process: int, values: Mapping[str, Any], now: float) -> None:
        """A program reports its progress; an invalid report is ignored."""
        try:
            self._states[process] = ProgressState.parse(values)
        except ValueError:
            return
        self._beat_at[process] = now

    def was_asked(self, process: int, by: str) -> List[Message]:
        """A process was asked to stop, as by "SIGTERM"."""
        if self.asked:
            return []
        self.asked = f"{by[:40]} at {self.name(process)}"
        return self._announce(ASKED, {"who": self.asked})

    def silent(self, now: float) -> List[str]:
        """The processes that have become silent, each returned once."""
        found = [i for i, _ in _until(now - self._named_after, self._heard_at) if i not in self._named]
        self._named.update(found)
        return [self.name(i) for i in found]

    def given_up(self) -> List[int]:
        """Processes whose launchers count as lost by silence, each returned once: connections may still be open."""
        found, self._given_up = self._given_up, []
        return found

    def ended(self, end: End, now: float = -math.inf) -> List[Message]:
        """A program has failed. The first report of each process counts."""
        if end.process in self._ends or end.process in self._done:
            return []
        if end.kind != FAILED and self.end is not None:
            return []  # most likely a consequence of that end
        if end.kind == FAILED and end.code not in FATAL:
            self._put_losses_first(end, now)
        self._heard_at.pop(end.process, None)
        self._ends[end.process] = verdict.stalled(end, self._states, self.name) if end.kind == STALLED else end
        first = first_of(self._ends.values(), known_of)
        if first == self.end:
            return []
        self.end = first
        return self._announce(END, {"host": self._hosts[first.process], "end": values_of(first)})

    def _put_losses_first(self, end: End, now: float) -> None:
        """Records the processes that are gone or silent as earlier ends: a peer's error is probably their effect."""
        silent = {i: now - at for i, at in _until(now - self._named_after, self._heard_at)}
        lost = {**dict.fromkeys(self._broken, 0.0), **silent}
        if end.process in lost:
            return
        self._given_up += silent
        for i, seconds in lost.items():
            self._heard_at.pop(i, None)
            self._broken.pop(i, None)
            if i not in self._ends and i not in self._done:
                self._ends[i] = verdict.lost([i], self.name, end.at - 1.0, silent_seconds=seconds)

    def signed_off(self, process: int) -> None:
        """A program has ended, or was asked to: the end of its launcher is not a loss."""
        self._heard_at.pop(process, None)
        self._broken.pop(process, None)
        self._done.add(process)

    def gone(self, process: int, now: float) -> None:
        """The connection of a launcher is lost."""
        if self._heard_at.pop(process, None) is not None:
            self._broken[process] = now

    def look(self, now: float, at: float) -> List[Message]:
        """The messages that are due."""
        if self._deadline is not None and now >= self._deadline and not self._is_refused:
            return self._refuse(
                "PeersMissingError", verdict.missing(self._positions, self._here, self._startup_seconds)
            )
        broken = [i for i, _ in _until(now - BACK_SECONDS, self._broken)]
        if broken:
            for i in broken:
                del self._broken[i]
            return self._lost(verdict.lost(broken, self.name, at), broken)
        silent = dict(_until(now - self.limit_seconds, self._heard_at))
        if silent:
            for i in silent:
                del self._heard_at[i]
            self._given_up += silent
            longest = now - min(silent.values())
            return self._lost(verdict.lost(list(silent), self.name, at, silent_seconds=longest), list(silent))
        return []

    def seconds(self, now: float) -> float:
        """Until something may be due."""
        moments = [] if self._deadline is None or self._is_refused else [self._deadline]
        moments += [moment + BACK_SECONDS for moment in itertools.islice(self._broken.values(), 1)]
        moments += [moment + self.limit_seconds for moment in itertools.islice(self._heard_at.values(), 1)]
        return max(0.0, min(moments, default=math.inf) - now)

    def stragglers(self, now: float) -> str:
        """The processes behind the others while none makes progress; empty while none stands out."""
        own, interval = self._states.get(0), self.heartbeat_seconds / BEATS
        if own is None or own.seconds <= STRAGGLER_BEATS * interval or own.phase in ENDING:
            return ""
        # A report from before a process stopped shows where it was, not where it is.
        standing_since = now - own.seconds + interval
        if any(self._beat_at.get(i, -math.inf) < standing_since for i in range(1, len(self._hosts))):
            return ""
        return verdict.stragglers(self._states, self.name)

    @property
    def _named_after(self) -> float:
        return named_after_seconds(self.heartbeat_seconds)

    def _lost(self, end: End, processes: Iterable[int]) -> List[Message]:
        """The end of several processes that are lost together: one end names all of them."""
        found = self.ended(end)
        self._done.update(processes)
        return found

    def _refuse(self, kind: str, message: str) -> List[Message]:
        self._is_refused = True
        return self._announce(REFUSED, {"error": kind, "message": message})

    def _announce(self, kind: str, values: Mapping[str, Any]) -> List[Message]:
        message = kind, {"attempt": self.attempt, **values}
        self._announced.append(message)
        return [message]


def _until(moment: float, moments: Mapping[int, float]) -> List[Any]:
    """The first pairs of a map in order of time, up to a moment."""
    return list(itertools.takewhile(lambda pair: pair[1] <= moment, moments.items()))
