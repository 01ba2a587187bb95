"""A lease on a checkpoint directory in a bucket, where files cannot be locked: only one live run may write there.

The lease is an object that names its holder and is rewritten every few seconds. Each write is conditional on the object
being the one that was written before, so that of two runs only one continues.

- A later attempt of the same job takes over at once: the pods of the earlier attempt, or its processes in the same
  containers, are gone before it starts.
- Any other run waits until the lease has not changed for a while by its own monotonic clock, and is refused if it
  changes. The time in the lease is for people: the clocks of two hosts may differ by any time.
- A holder that finds another one's name in its lease has to end. It checks with every renewal, and before every save.

Orbax creates the folder, and later marks it as a checkpoint, in threads of process 0; all other writes of a save wait
for the folder. The claim is confirmed before both, in these threads, so that the training loop does not wait for
storage, and a run that has lost the directory neither writes into a step of its successor nor commits one.

Orbax's threads wait 300 s for a folder that could not be created, and a Python program does not end before its threads.
If canceled, they still wait until they are woken, which needs names of `orbax.checkpoint._src`: Orbax exports none.
"""

import asyncio
import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint._src.futures import future, synchronization

from tpujob_contract.typed import object_in
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

LEASE = "lease.json"
RENEW_SECONDS = 5.0
LAPSE_SECONDS = 15.0
"""A lease that has not changed for this long belongs to a dead run."""
STOP_SECONDS = 30.0
"""How long the release waits for a renewal that is under way."""


class Lease:
    """Held from `take` until `release`."""

    def __init__(self, directory: str, record: dict[str, Any], version: bytes, *, renew_seconds: float) -> None:
        self.taken_by: str | None = None
        """The new holder, if this run has lost the lease."""
        self._bucket = open_bucket(directory)
        self._record = record
        self._version = version
        self._renew_seconds = renew_seconds
        self._released = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewer.start()

    def verify(self) -> None:
        """Returns if this run may write.

        Raises:
            ConfigurationError: another run has taken over.
        """
        if self.taken_by is not None:
            raise errors.ConfigurationError(
                f"spec.checkpointDir: another run has taken over {self._bucket.url}: {self.taken_by}; "
                "this one ends, what it committed is there"
            )

    def confirm(self) -> bool:
        """Like `verify`, but reads the lease first; returns whether it was gone and is written again.

        Raises:
            ConfigurationError: another run has taken over.
            OSError: storage does not answer.
        """
        is_gone = self._bucket.look(LEASE) is None
        self._look()
        self.verify()
        return is_gone

    def release(self) -> None:
        """Releases the lease, so that the next run can write at once."""
        self._released.set()
        self._renewer.join(STOP_SECONDS)
        if self.taken_by is None:
            try:
                self._write({**self._record, "released": True})
            except OSError as error:
                logger.warning("Cannot release %s: %s", LEASE, storage_errors.brief(error))

    def _renew(self) -> None:
        while not self._released.wait(self._renew_seconds):
            try:
                self._write({**self._record, "renewed": time.time()})
            except OSError as error:
                # Storage is out of reach; if another run takes over meanwhile, the next successful write shows it.
                logger.debug("Cannot renew %s: %s", LEASE, storage_errors.brief(error))
            if self.taken_by is not None:
                return

    def _write(self, record: dict[str, Any]) -> None:
        version = self._bucket.replace(LEASE, json.dumps(record), version=self._version)
        # None also after an earlier write of ours whose response was lost, and if the lease was gone.
        self._version = version or self._look() or self._version

    def _look(self) -> bytes | None:
        """The version of the stored lease; None: it is another run's, and `taken_by` is set.

        A lease that is gone has no owner, and is taken again: of several runs that do so, only one succeeds.
        """
        found = self._bucket.look(LEASE)
        if found is None:
            self._bucket.create(LEASE, json.dumps(self._record))
            found = self._bucket.look(LEASE)
        present = object_in(found.data) if found else {}
        if found and present.get("run") == self._record["run"]:
            return found.version
        self.taken_by = str(present.get("holder", "a run that left no name"))
        return None


def take(
    directory: str,
    *,
    run: str,
    host: str,
    lapse_seconds: float = LAPSE_SECONDS,
    renew_seconds: float = RENEW_SECONDS,
) -> Lease:
    """The lease of a directory, once no other run holds it.

    Args:
        directory: Of one owner; other jobs were refused before.
        run: The attempt, as in `Runtime.attempt_id`.
        host: Where process 0 runs.
        lapse_seconds: Time without a change after which the lease of another run has lapsed.
        renew_seconds: Time between two writes of ours.

    Raises:
        ConfigurationError: another run is alive.
        OSError: storage cannot be reached.
    """
    record = {"run": run, "holder": f"attempt {run}, process {os.getpid()} on host {host}", "renewed": time.time()}
    bucket = open_bucket(directory)
    watched, since = b"", time.monotonic()
    while True:
        bucket.create(LEASE, json.dumps(record))
        found = bucket.look(LEASE)
        if found is None:
            continue  # another process has removed it meanwhile
        present = object_in(found.data)
        if present.get("run") == run:
            return Lease(directory, record, found.version, renew_seconds=renew_seconds)
        if watched and found.version != watched and not present.get("released"):
            raise errors.ConfigurationError(
                f"spec.checkpointDir: another run is writing to {directory}: {present.get('holder', 'unknown')}; "
                "end it first, or use another directory"
            )
        if not watched and not _is_free(present, run):
            logger.info("Waiting whether %s, which had %s, is still alive", present.get("holder"), directory)
        watched = found.version
        if _is_free(present, run) or time.monotonic() - since >= lapse_seconds:
            text = json.dumps({**record, "renewed": time.time()})
            version = bucket.replace(LEASE, text, version=found.version)
            if version is not None:
                return Lease(directory, record, version, renew_seconds=renew_seconds)
        time.sleep(min(1.0, lapse_seconds / 5))


def _is_free(present: dict[str, Any], run: str) -> bool:
    """Whether a lease may be taken over without watching it."""
    return bool(present.get("released")) or _attempt(run) > _attempt(str(present.get("run", "")))


def _attempt(run: str) -> tuple[int, ...]:
    """Incarnation, attempt, and the in-place attempt if it is not the first; later attempts compare greater."""
    numbers = run.partition("-")[0].split(".")
    return tuple(map(int, numbers)) if all(map(str.isdigit, numbers)) else ()


_NEVER_AWAITED = r"coroutine '(_create_paths|cancellable|_\w*serialize_\w+.*|\w*Handler\._\w+)' was never awaited"


def claimed_path(
    directory: str, confirm: Callable[[], None], give_up: Callable[[Exception], None] = lambda error: None
) -> type[Any]:
    """Orbax's `TemporaryPath` for steps of a directory, which calls `confirm` before it creates or commits a folder.

    Args:
        directory: The checkpoint directory.
        confirm: Raises an error when another run has taken the directory over. Called in a thread, on process 0.
        give_up: Called, in a thread, with the reason why the folder could not be created, before Orbax gets it.
    """
    base = ocp.path.atomicity_defaults.get_default_temporary_path_class(epath.Path(directory))

    class ClaimedPath(base):  # type: ignore[misc, valid-type]
        async def create(self) -> epath.Path:
            try:
                await asyncio.to_thread(confirm)
                return await super().create()
            except Exception as error:
                await asyncio.to_thread(give_up, error)
                raise

        async def finalize(self) -> None:
            await asyncio.to_thread(confirm)
            await super().finalize()

    return ClaimedPath


class Cancellation:
    """Ends one save without writing. Only for a single process: threads of others would be woken, too, and write."""

    def __init__(self) -> None:
        """For a save that is about to start."""
        self.cause: Exception | None = None
        """Why the folder could not be created, once the save was canceled."""
        self._is_begun = threading.Event()
        self._operation = ""

    def begun(self) -> None:
        """Called by the thread that has started the save, when all its threads exist."""
        self._operation = synchronization.OperationIdGenerator.get_current_operation_id()
        self._is_begun.set()

    def failed(self) -> None:
        """Called instead if the save could not be started: its threads cannot be canceled, so none is woken."""
        self._is_begun.set()

    def cancel(self, checkpointer: ocp.AsyncCheckpointer, cause: Exception) -> None:
        """Cancels the save, waking its threads; waits until it has started."""
        self.cause = cause
        self._is_begun.wait()
        if not self._operation:
            return
        warnings.filterwarnings("ignore", _NEVER_AWAITED, RuntimeWarning)
        checkpointer.cancel()
        awaited = synchronization.HandlerAwaitableSignal
        future.set_signals(
            [awaited.STEP_DIRECTORY_CREATION, awaited.ITEM_DIRECTORY_CREATION], operation_id=self._operation
        )
