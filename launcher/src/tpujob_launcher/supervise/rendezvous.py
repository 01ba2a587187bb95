"""This launcher's part in the protocol of the job's launchers, which connect in every job of several processes."""

import logging
import signal
import time
from pathlib import Path
from typing import Optional

from tpujob_contract.connections.open_files import TooFewFiles
from tpujob_contract.environment import DistributedProcess, Process
from tpujob_contract.exit_codes import ExitCode, describe
from tpujob_launcher.peers.client import Client
from tpujob_launcher.peers.messages import BYE, FINISHED, READY, STOPPING
from tpujob_launcher.peers.peers import Peers
from tpujob_launcher.peers.server import Server
from tpujob_launcher.peers.timing import LONGEST_PAUSE_SECONDS, READY_SECONDS
from tpujob_launcher.supervise.outcome import ExitResult, exit_code_of
from tpujob_launcher.supervise.signals import STOP, SignalQueue

logger = logging.getLogger(__name__)

ANSWER_SECONDS = READY_SECONDS + LONGEST_PAUSE_SECONDS + 30.0
"""Time for launcher 0 to decide on the next attempt; its own limits are shorter."""


def meet(process: Process, folder: Path) -> Optional[Peers]:
    """The other launchers; None: there are none and no restarts in place, or launcher 0 cannot listen.

    Args:
        process: This one.
        folder: An empty one, for the socket of the program.
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
    logger.warning(
        "the launchers of this job cannot connect, and the first failure is not reported to all: %s", problem
    )
    return None


def join(peers: Peers, signals: SignalQueue) -> Optional[int]:
    """The attempt in which a launcher in a replaced pod joins the others; None: there is none."""
    logger.warning("this pod takes the place of an earlier one: asking launcher 0 for the attempt to join")
    peers.start()
    return _following(peers, signals)


def announce_end(peers: Peers, result: ExitResult, words: str) -> None:
    """Reports to the others how the program has ended, with its last lines, before its leftovers are ended."""
    code, failure = exit_code_of(result)[0], result.failure
    if result.stop_signal is not None:
        peers.was_stopped = True
        peers.report((BYE, {"why": STOPPING, "at": result.stopped_at}))
    elif result.ended_by_peer:
        return
    elif code == ExitCode.FINISHED:
        peers.has_finished = True
        peers.report((BYE, {"why": FINISHED}))
    elif code == ExitCode.STOPPED and not peers.in_place:
        peers.report_if_connected((BYE, {}))  # other processes with this code may save for longer
    else:
        # The time of the failure, not of the end of its process, which a peer may have noticed earlier.
        at = failure.at if failure else result.stopped_at
        peers.fail(code, at, words or (failure.error if failure else ""))


def next_attempt(peers: Peers, signals: SignalQueue, code: int) -> Optional[int]:
    """The next attempt in this container, once no host has processes of the last one; None: none starts.

    Call `announce_end` before. `code` is the exit code of the program.
    """
    if peers.was_stopped or peers.has_finished or not peers.in_place:
        return None
    following = _following(peers, signals)
    if following is None:
        reason = "it was asked to stop" if peers.was_stopped else peers.state.over or "no answer"
        logger.warning("exit code %s; no further attempt in this container: %s", describe(code), reason)
    return following


def stop_between(peers: Peers, number: int) -> None:
    """The container got this stop signal while no program ran: no further attempt starts in it."""
    logger.warning("told to stop by %s between two attempts", signal.Signals(number).name)
    peers.was_stopped = True
    peers.report((BYE, {"why": STOPPING, "at": time.time()}))


def refuse(peers: Peers, code: int, line: str) -> None:
    """Reports to the others that the program of this attempt does not start here: exit code and reason."""
    if code == ExitCode.STOPPED:
        peers.report((BYE, {"why": STOPPING, "at": time.time()}))
    elif peers.state.attempt >= 0:
        peers.fail(code, time.time(), line)


def _following(peers: Peers, signals: SignalQueue) -> Optional[int]:
    """The attempt that launcher 0 lets start; reports to each launcher 0, old or new, that this one is ready for it."""
    state = peers.state
    attempt = state.attempt
    deadline = time.monotonic() + ANSWER_SECONDS + (peers.process.startup_seconds if peers.replaces_pods else 0)
    ready_for = (attempt, -1)
    while state.over is None and time.monotonic() < deadline:
        if state.announced > attempt and ready_for != (state.announced, peers.welcomes):
            ready_for = (state.announced, peers.welcomes)
            peers.report((READY, {"attempt": state.announced}))
        if state.allowed > attempt:
            logger.warning("attempt %d in the same containers: %s", state.allowed, state.cause)
            return state.allowed
        seconds = peers.seconds()
        for number in signals.wait(1.0 if seconds is None else min(1.0, seconds), peers):
            if number in STOP:
                stop_between(peers, number)
                return None
        peers.step()
    return None
