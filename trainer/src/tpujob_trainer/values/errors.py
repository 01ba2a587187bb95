"""Errors that end a trainer process on purpose: each class is an exit code of the contract, each message one line."""

from typing import ClassVar

from tpujob_contract import ExitCode
from tpujob_contract.storage_address import redacted

ANOTHER_RUN = "start another run: another metadata.name, and another spec.checkpointDir where the job names one"
"""The remedy in messages when a run cannot continue with other data or another model."""


class TrainerError(Exception):
    """An error that ends the process; the message states what was found, what is allowed and what to do.

    A plain `TrainerError` is a crash: charged, and tried again. The message goes into logs, reports, statuses and
    files: the addresses in it have no user, password or query.
    """

    exit_code: ClassVar[int] = 1
    is_shared = False
    """Whether all processes end with this same error, so that it need not be announced."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(each) if isinstance(each, str) else each for each in args))


class ConfigurationError(TrainerError):
    """The configuration is wrong: another try would end the same way."""

    exit_code = ExitCode.CONFIGURATION


class NotFoundError(TrainerError):
    """A bucket, data set or file does not exist, or access to it is denied."""

    exit_code = ExitCode.NOT_FOUND


class DivergedError(TrainerError):
    """The loss or the gradient stopped being finite."""

    exit_code = ExitCode.DIVERGED


class StalledError(TrainerError):
    """No step within the limit."""

    exit_code = ExitCode.STALLED


class PeersMissingError(TrainerError):
    """Not all processes arrived at the start."""

    exit_code = ExitCode.PEERS_MISSING


_BY_NAME: dict[str, type[TrainerError]] = {
    kind.__name__: kind
    for kind in (TrainerError, ConfigurationError, NotFoundError, DivergedError, StalledError, PeersMissingError)
}


def message(error: BaseException, most: int | None = 300) -> str:
    """The message of an error on one line, or its class if it has none.

    Args:
        error: The error.
        most: How many characters are kept; None: all. TensorStore's dump of settings never is.
    """
    text = redacted(" ".join(str(error).split(" [tensorstore_spec=")[0].split()))
    return text[:most] or type(error).__name__


def brief(error: BaseException) -> str:
    """One line about an error: its class and its message."""
    name, text = type(error).__name__, message(error)
    return text if text == name else f"{name}: {text}"


def to_dict(error: TrainerError) -> dict[str, str]:
    """The error as JSON values, so that the other processes can end with the same message."""
    kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in _BY_NAME)
    return {"error": kind, "message": str(error)}


def from_dict(values: dict[str, str]) -> TrainerError:
    """The error that `to_dict` described."""
    return _BY_NAME[values["error"]](values["message"])
