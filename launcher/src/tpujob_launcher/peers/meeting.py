"""This launcher among the launchers of its job: they meet in every job of several processes."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path
from typing import Optional

from tpujob_contract.connections.open_files import TooFewFiles
from tpujob_contract.environment import DistributedProcess, Process
from tpujob_contract.exit_codes import ExitCode, describe
from tpujob_launcher.child.outcome import ExitResult, exit_code_of
from tpujob_launcher.child.signals import STOP, SignalQueue
from tpujob_launcher.peers.client import Client
from tpujob_launcher.peers.decisions import LONGEST_PAUSE_SECONDS, READY_SECONDS
from tpujob_launcher.peers.messages import BYE, FINISHED, READY, STOPPING
from tpujob_launcher.peers.peers import Peers
from tpujob_launcher.peers.server import Server

logger = logging.getLogger(__name__)

ANSWER_SECONDS = READY_SECONDS + LONGEST_PAUSE_SECONDS + 30.0
"""For launcher 0 to say what follows: it gives up by itself before."""


def meet(process: Process, folder: Path) -> Optional[Peers]:
    """The other launchers; None for a process alone that does not start again here, or where launcher 0 cannot listen.

    An empty folder is for the socket of the program.
    """
    if not isinstance(process, DistributedProcess) or (process.num_processes == 1 and not process.in_place):
        return None
    if process.process_id > 0:
        return Client(process, process.coordinator.rpartition(":")[0], process.launcher_port, folder)
    try:
        return Server(process, process.launcher_port, folder)
    except OSError as error:
        problem = f"port {process.launcher_port} cannot be had: {error}"
    except TooFewFiles as error:
        problem = str(error)
    logger.warning("the launchers of this job cannot meet, and who fails first is not told to all: %s", problem)
    return None


def join(peers: Peers, signals: SignalQueue) -> Optional[int]:
    """The attempt with which a launcher in a replaced pod joins the others; None: there is none."""
    logger.warning("this pod takes the place of an earlier one: asking launcher 0 for the attempt to join")
    peers.start()
    return _following(peers, signals)


def announce_end(peers: Peers, result: ExitResult, words: str) -> None:
    """Tells the others at once how the program has ended, and its last words; what it left behind may take its time."""
    code, failure = exit_code_of(result)[0], result.failure
    if result.stop_signal is not None:
        peers.was_stopped = True
        peers.say((STOPPING, {"at": result.stopped_at}))
    elif result.was_told:
        return
    elif code == ExitCode.FINISHED:
        peers.has_finished = True
        peers.say((FINISHED, {}))
    elif code == ExitCode.STOPPED and not peers.in_place:
        peers.mention((BYE, {}))  # others that stop with it may save for longer
    else:
        # Not when its process was gone: a peer may have noticed that before.
        at = failure.at if failure else result.stopped_at
        peers.fail(code, at, words or (failure.error if failure else ""))


def next_attempt(peers: Peers, signals: SignalQueue, code: int) -> Optional[int]:
    """The attempt that may start now in this container, once nothing of the last is left anywhere; None: there is none.

    The other launchers were told of the end of the program, with this code.
    """
    if peers.was_stopped or peers.has_finished or not peers.in_place:
        return None
    following = _following(peers, signals)
    if following is None:
        reason = "it was asked to stop" if peers.was_stopped else peers.standing.over or "no answer"
        logger.warning("exit code %s; no further attempt in this container: %s", describe(code), reason)
    return following


def stop_between(peers: Peers, number: int) -> None:
    """This container was asked to stop, by this signal, while no program ran: no further attempt starts in it."""
    logger.warning("told to stop by %s between two attempts", signal.Signals(number).name)
    peers.was_stopped = True
    peers.say((STOPPING, {"at": time.time()}))


def refuse(peers: Peers, code: int, line: str) -> None:
    """Tells the others that the program of this attempt does not start here: exit code, and why."""
    if code == ExitCode.STOPPED:
        peers.say((STOPPING, {"at": time.time()}))
    elif peers.standing.attempt >= 0:
        peers.fail(code, time.time(), line)


def _following(peers: Peers, signals: SignalQueue) -> Optional[int]:
    """The attempt that launcher 0 lets start; says that this launcher is ready for it, to each launcher 0 anew."""
    standing = peers.standing
    attempt = standing.attempt
    deadline = time.monotonic() + ANSWER_SECONDS + (peers.process.startup_seconds if peers.replaces_pods else 0)
    ready_for = (attempt, -1)
    while standing.over is None and time.monotonic() < deadline:
        if standing.announced > attempt and ready_for != (standing.announced, peers.welcomes):
            ready_for = (standing.announced, peers.welcomes)
            peers.say((READY, {"attempt": standing.announced}))
        if standing.allowed > attempt:
            logger.warning("attempt %d in the same containers: %s", standing.allowed, standing.cause)
            return standing.allowed
        seconds = peers.seconds()
        for number in signals.wait(1.0 if seconds is None else min(1.0, seconds), peers):
            if number in STOP:
                stop_between(peers, number)
                return None
        peers.step()
    return None
