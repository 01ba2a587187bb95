"""Classifies errors of storage: access denied, missing, full, or out of reach; and those that end a run for them."""

import contextlib
import errno
import re
import socket
from collections.abc import Iterator

from tpujob_trainer.storage.bucket import is_local
from tpujob_trainer.values import errors

_REFUSED = re.compile(r"PERMISSION_DENIED|UNAUTHENTICATED|Forbidden|[Pp]ermission denied|\b(code:? |HTTP )40[13]\b")
_MISSING = re.compile(r"NOT_FOUND|\b(code:? |HTTP )404\b")
_OUT_OF_REACH = re.compile(
    r"UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ABORTED|CANCELLED|[Tt]imed? ?out|[Cc]onnection"
    r"|[Tt]oo [Mm]any [Rr]equests|\b(code:? |HTTP )(408|429|5\d\d)\b"
    r"|Cannot connect to host|[Nn]ame resolution|Name or service not known|Could not resolve host"
)
"""TensorStore's status codes, and what HTTP libraries write (google/tensorstore:tensorstore/internal/http/)."""
_FULL = re.compile(r"[Nn]o space left on device|[Dd]isk quota exceeded")
_UNROUTED = {
    errno.ECONNREFUSED, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL,
}  # fmt: skip
_LOCAL = {errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOTCONN}


def brief(error: BaseException) -> str:
    """One line with the message of storage itself, which libraries wrap in errors about their own code."""
    return errors.brief(_chain(error)[-1])


def is_full(error: BaseException) -> bool:
    """Whether storage has no space left: a retry succeeds once there is some."""
    return any(
        getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _FULL.search(str(cause))
        for cause in _chain(error)
    )


def is_refused(error: BaseException) -> bool:
    """Whether storage denied access: a retry would fail the same way."""
    return any(_is_refused(cause) for cause in _chain(error))


def is_missing(error: BaseException) -> bool:
    """Whether storage answered that the object does not exist; for a write, that the bucket does not."""
    return any(
        isinstance(cause, FileNotFoundError)
        or status_of(cause) == 404
        or bool(_MISSING.search(_without_paths(errors.brief(cause))))
        for cause in _chain(error)
    )


def is_out_of_reach(error: BaseException) -> bool:
    """Whether the failure says nothing about the data: access denied, storage overloaded or slow, no memory."""
    return any(_is_out_of_reach(cause) for cause in _chain(error))


def is_unreachable(error: BaseException) -> bool:
    """Whether no server was reached: its name did not resolve, there is no route, or it refused the connection."""
    return isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno in _UNROUTED)


def _is_refused(error: BaseException) -> bool:
    if isinstance(error, PermissionError) or status_of(error) in (401, 403):
        return True
    if getattr(error, "errno", None) == errno.EROFS:
        return True
    return bool(_REFUSED.search(_without_paths(errors.brief(error))))


def _is_out_of_reach(error: BaseException) -> bool:
    if _is_refused(error) or isinstance(error, ConnectionError | TimeoutError | MemoryError):
        return True
    if is_unreachable(error):
        return True
    code = status_of(error)
    if code is not None and (code in (408, 429) or code >= 500):
        return True
    if isinstance(error, OSError) and error.errno in _LOCAL:
        return True
    return bool(_OUT_OF_REACH.search(_without_paths(errors.brief(error))))


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an error, as aiohttp, requests, httpx, gcsfs or urllib keep it; None: it has none."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status", "status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int | str) and re.fullmatch(r"[1-5]\d\d", str(value)):
                return int(value)
    return None


def _without_paths(text: str) -> str:
    """The text without paths and URLs: users choose their words, which may match the patterns above."""
    unquoted = re.sub(r'"[^"]*"', lambda quoted: "" if "/" in quoted[0] else quoted[0], text)
    return re.sub(r"\S*/\S*", "", unquoted)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, the root cause last."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return chain


def unusable(directory: str, error: Exception, *, field: str = "spec.checkpointDir") -> errors.TrainerError:
    """The error that ends a run whose directory cannot be read or written.

    Args:
        directory: A path or the address of a folder of a bucket.
        error: Of a library.
        field: The field of the job that names the directory.
    """
    # Errors from a bucket have no error number, and often no text except an address.
    cause = error.strerror if isinstance(error, OSError) and error.strerror else errors.brief(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        return errors.ConfigurationError(
            f"{field}: {directory} is not a directory ({cause}); give a directory or a gs:// address"
        )
    if is_full(error):  # TensorStore's code for it is that of an overloaded server
        return errors.TrainerError(
            f"{field}: the disk of {directory} is full ({cause}); make room there, another attempt may succeed"
        )
    if is_out_of_reach(error) and not is_refused(error):
        return errors.TrainerError(
            f"{field}: {directory} cannot be reached at present ({cause}); another attempt may succeed"
        )
    return errors.NotFoundError(
        f"{field}: {directory} cannot be read and written ({cause}); create it, or "
        + (
            "make it writable for the user that the pods run as"
            if is_local(directory)
            else "let the pods' service account read, create and delete objects there"
        )
    )


@contextlib.contextmanager
def used(directory: str) -> Iterator[None]:
    """Converts errors of the block, in which only `spec.checkpointDir` may be read and written.

    Raises:
        TrainerError: an error of any class inside the block, as converted by `unusable`.
    """
    try:
        yield
    except errors.TrainerError:
        raise
    except Exception as error:
        raise unusable(directory, error) from error
