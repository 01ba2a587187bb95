"""Checks that a pod can use the job's checkpoint directory: writes, lists, reads and deletes an object there.

For `tpujob doctor --probe`: the pod has the job's image and identity, so it gets the errors that the job would get.
"""

import contextlib
import logging
import secrets
from collections.abc import Callable

from tpujob_contract import ExitCode, Process
from tpujob_trainer.storage import Bucket, open_bucket, reachability
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

PREFIX = "tpujob-probe-"
"""Of the object's name, so that one that could not be deleted can be recognized."""
CONTENT = b"written by tpujob doctor --probe, and to be deleted"


def run(process: Process) -> int:
    """Tries the checkpoint directory of a process; returns the exit code.

    Raises:
        NotFoundError: storage refuses one of the operations.
        TrainerError: no server answers, or storage fails otherwise.
    """
    directory = process.checkpoint_dir
    if directory is None:
        logger.info("This image starts; without spec.checkpointDir there is nothing else to try.")
        return ExitCode.FINISHED
    try:
        reachability.wait_until_reachable(directory, notice=_tell)
        try_bucket(open_bucket(directory))
    except ConnectionError as error:
        raise errors.TrainerError(f"spec.checkpointDir: {directory} cannot be reached: {error}") from error
    logger.info("An object was written to %s, listed, read and deleted.", directory)
    return ExitCode.FINISHED


def try_bucket(bucket: Bucket) -> None:
    """Writes, lists, reads and deletes one object.

    Raises:
        NotFoundError: storage refuses one of them, or does not have what was written.
        TrainerError: storage fails otherwise.
    """
    name = PREFIX + secrets.token_hex(8)
    _try("write", bucket, name, lambda: bucket.create(name, CONTENT) is not None)
    try:
        _try("list", bucket, name, lambda: name in bucket.names(PREFIX))
        _try("read", bucket, name, lambda: bucket.read(name) == CONTENT)
    except errors.TrainerError:
        with contextlib.suppress(OSError):  # the first error is reported
            bucket.delete(name)
        raise
    _try("delete", bucket, name, lambda: bucket.delete(name))


def _try(verb: str, bucket: Bucket, name: str, act: Callable[[], bool]) -> None:
    field = f"spec.checkpointDir: {bucket.url}: cannot {verb} {name}"
    try:
        is_done = act()
    except OSError as error:
        said = storage_errors.brief(error)
        if storage_errors.is_refused(error) or isinstance(error, FileNotFoundError):
            raise errors.NotFoundError(
                f"{field}: {said}; a job lists, reads, writes and deletes there: grant its service account that role"
            ) from error
        raise errors.TrainerError(f"{field}: {said}") from error
    if not is_done:
        raise errors.NotFoundError(f"{field}: storage answered, and the object is not as it was written")


def _tell(message: str | None) -> None:
    if message is not None:
        logger.warning("%s", message)
