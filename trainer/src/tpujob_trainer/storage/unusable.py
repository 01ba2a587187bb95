"""The errors that end a run whose directory cannot be used, permanently or for now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tpujob_trainer import errors
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage import is_local


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
    if storage_errors.is_out_of_reach(error) and not storage_errors.is_refused(error):
        return errors.TrainerError(
            f"{field}: {directory} cannot be reached at present ({cause}); another attempt may succeed"
        )
    if storage_errors.is_full(error):
        return errors.TrainerError(
            f"{field}: the disk of {directory} is full ({cause}); make room there, another attempt may succeed"
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
