"""The termination message: what `kubectl describe pod` and the operator read about a container that has ended."""

import datetime
import logging
import os
import re
from pathlib import Path
from typing import Mapping, Optional, Union

from tpujob_contract import environment

logger = logging.getLogger(__name__)

LIMIT_BYTES = 4096
"""What the kubelet reads of it (kubernetes/kubernetes:pkg/kubelet/container: MaxContainerTerminationMessageLength)."""

DEFAULT_PATH = Path("/dev/termination-log")
"""The kubelet mounts a file here unless the container names another place."""

NOT_ASKED = "not told to stop: the program asks for another start"
"""The launcher's line about exit code 75 that no signal preceded."""

RETURNED_0 = "the program returned 0"
"""How the launcher's line ends about a program that took a stop signal for the end of its job."""

_NAMED = re.compile(
    r"\A(?:exit code [^\n]*\n)?(?:program failed at [^\n]*\n)?"  # the launcher's lines before that one
    r"(?:\S+: process \d+ of \d+: )?"  # how the trainer begins its own
    r"(?:asked to stop \([^\n]*?\), and |[^\n]*; (?=behind the others:))?"
    r"(?P<sentence>(?:ended with|lost|behind the others:) process (?P<process>\d+)"
    r"(?: on host | \(|, which was first|: silent for |: its connection broke))"
)
"""The sentence about another process, as `tpujob_launcher.peers.verdict` writes it, at the start of a message.

Only there: a program may print such a sentence, and its last lines are part of the message.
"""

_PROGRAM_CODE = re.compile(r"^the program's own exit code: (\d{1,3})$", re.MULTILINE)
_MOMENT = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6})Z"
_FAILED = re.compile(rf"^program failed at {_MOMENT}: ", re.MULTILINE)
_STOPPED = re.compile(rf"^program stopped at {_MOMENT}$", re.MULTILINE)


def failure_line(at: float, error: str) -> str:
    """The line that names the error of a program and when it was raised; `failed_at` reads it.

    Args:
        at: Unix time.
        error: The exception, in one line.
    """
    return f"program failed at {_moment(at)}: {error}"


def stopped_line(at: float) -> str:
    """The line about when a program that ends with 75 was asked to stop, or ended; `stopped_at` reads it."""
    return f"program stopped at {_moment(at)}"


def program_code_line(code: int) -> str:
    """The launcher's line about the exit code of a program whose container has another one."""
    return f"the program's own exit code: {code}"


def program_code(message: str) -> Optional[int]:
    """The exit code of the program in the launcher's line, which is the last; None: the message has none."""
    found = _PROGRAM_CODE.findall(message)
    return int(found[-1]) & 0xFF if found else None


def failed_at(message: str) -> Optional[float]:
    """When the program failed, as Unix time; None: the message has no such line."""
    return _parsed(_FAILED.search(message))


def stopped_at(message: str) -> Optional[float]:
    """When the program stopped, as Unix time; None: the message has no such line."""
    return _parsed(_STOPPED.search(message))


def _moment(at: float) -> str:
    moment = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)  # noqa: UP017 - new in 3.11
    return f"{moment.strftime('%Y-%m-%dT%H:%M:%S.%f')}Z"


def _parsed(found: Optional[re.Match[str]]) -> Optional[float]:
    if found is None:
        return None
    try:
        return datetime.datetime.fromisoformat(f"{found[1]}+00:00").timestamp()
    except ValueError:  # a month 13, from a program that imitates the line
        return None


def named_in(message: str) -> Optional[int]:
    """The process that a message, or its first line, names as the cause; None: it names no other process."""
    found = _NAMED.match(message)
    return int(found["process"]) if found else None


def shortened(message: str, characters: int) -> str:
    """The end of a message, preceded by the lines that `named_in` and `failed_at` read, which are at its beginning.

    Args:
        message: As a container left it.
        characters: The most that are returned.
    """
    if len(message) <= characters:
        return message
    named, failed = _NAMED.match(message), _FAILED.search(message)
    starts = [*([named.start("sentence")] if named else []), *([failed.start()] if failed else [])]
    lines = [message[start:].split("\n", 1)[0][: characters // 3] for start in starts]
    head = "".join(f"{line}\n" for line in dict.fromkeys(lines))
    return head + message[len(message) - characters + len(head) :]


def find(environ: Mapping[str, str], default_path: Path = DEFAULT_PATH) -> Optional[Path]:
    """The file of the message; None: there is none, as outside a container."""
    asked_for = environ.get(environment.TERMINATION_LOG)
    if asked_for:
        return Path(asked_for)
    return default_path if os.access(default_path, os.W_OK) else None


def write(path: Path, words: Union[str, bytes], last_line: str = "") -> bool:
    """Writes a message; returns whether that succeeded. A failure is a warning: it must not hide the end itself.

    Args:
        path: The file, as `find` returned it.
        words: Text for people; cut if it is too long.
        last_line: Text for programs; never cut.
    """
    # Names of files may hold bytes that no encoding has.
    last = last_line.encode(errors="backslashreplace")
    given = words.encode(errors="backslashreplace") if isinstance(words, str) else words
    kept = given[: LIMIT_BYTES - len(last) - bool(last)].decode(errors="ignore").encode()
    try:
        path.write_bytes(b"\n".join(part for part in (kept, last) if part))
    except OSError as error:
        logger.warning("Cannot write the termination message to %s: %s", path, error)
        return False
    return True
