"""Why units did not finish: one small object for each time, `failures/<worker>-<number>.json`."""

from __future__ import annotations

import errno
import itertools
import json
import logging

from tpujob_trainer import errors
from tpujob_trainer.storage import Bucket
from tpujob_trainer.storage import errors as storage_errors

logger = logging.getLogger(__name__)

FOLDER = "failures/"

_NUMBERS = itertools.count()


def record(objects: Bucket, worker: str, unit: int | None, error: BaseException) -> None:
    """Leaves word of a failure, as far as storage answers."""
    text = {"worker": worker, "unit": unit, "cause": cause_of(error), "message": storage_errors.brief(error)}
    try:
        objects.create(f"{FOLDER}{worker}-{next(_NUMBERS)}.json", json.dumps(text).encode())
    except OSError as failed:
        logger.warning("Cannot write down a failure: %s", storage_errors.brief(failed))


def cause_of(error: BaseException) -> str:
    """A failure in a word or two, to be counted by."""
    if isinstance(error, ScratchFullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return "scratch full"
    if isinstance(error, errors.NotFoundError):
        return "data"
    if isinstance(error, errors.ConfigurationError):
        return "configuration"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED: Out of memory" in str(error):
        return "out of memory"
    if storage_errors.is_out_of_reach(error):
        return "storage"
    return type(error).__name__


class ScratchFullError(errors.TrainerError):
    """The local disk has no room for a unit's files; what was uploaded is there."""
