"""Why units did not finish: one small object for each failure, `failures/<cause>/<worker>-<number>.json`.

The cause is in the name, so that a listing is enough to count failures by cause.
"""

import collections
import errno
import itertools
import json
import logging
from collections.abc import Iterable

from tpujob_trainer.storage import Bucket
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.values import device_memory, errors

logger = logging.getLogger(__name__)

FOLDER = "failures/"

_NUMBERS = itertools.count()


def record(objects: Bucket, worker: str, unit: int | None, error: BaseException) -> None:
    """Writes a failure to storage, if storage answers."""
    cause = cause_of(error)
    text = {"worker": worker, "unit": unit, "cause": cause, "message": storage_errors.brief(error)}
    name = f"{FOLDER}{cause.replace(' ', '-')}/{worker}-{next(_NUMBERS)}.json"
    try:
        objects.create(name, json.dumps(text).encode())
    except OSError as failed:
        logger.warning("Cannot write down a failure: %s", storage_errors.brief(failed))


def counts(names: Iterable[str]) -> dict[str, int]:
    """How often each cause occurs in a listing of failures; those of an earlier layout count as unknown."""
    parts = (name.removeprefix(FOLDER).split("/") for name in names)
    return dict(collections.Counter(part[0].replace("-", " ") if len(part) > 1 else "unknown" for part in parts))


def cause_of(error: BaseException) -> str:
    """The cause of a failure in a word or two, for counting."""
    if isinstance(error, ScratchFullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return "scratch full"
    if isinstance(error, errors.NotFoundError):
        return "data"
    if isinstance(error, errors.ConfigurationError):
        return "configuration"
    if isinstance(error, MemoryError) or device_memory.is_exhausted(error):
        return "out of memory"
    if storage_errors.is_out_of_reach(error):
        return "storage"
    return type(error).__name__


class ScratchFullError(errors.TrainerError):
    """The local disk has no room for a unit's files; what was uploaded is there."""
