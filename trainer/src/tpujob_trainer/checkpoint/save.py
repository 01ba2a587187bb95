"""One save, from its start to its commit.

- Orbax writes in its own threads, with barriers that go through the coordination service and never through devices.
- The result is announced once, to all processes: by process 0 when it sees the commit marker or the time limit is over,
  or by the first process that fails.
- A save that exceeds its limit is abandoned: nothing waits for it, and what it does later does not change the announced
  result. It may still become a valid checkpoint.
- Each save has its own Orbax checkpointer and barrier names, so that a stuck save cannot block the next one.
"""

import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import absl.flags
import jax
import orbax.checkpoint as ocp
import tensorstore
from etils import epath

from tpujob_trainer.checkpoint import fingerprint, layout
from tpujob_trainer.checkpoint.fingerprint import InFlight
from tpujob_trainer.checkpoint.layout import Commit
from tpujob_trainer.checkpoint.lease import Cancellation, claimed_path
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.distributed.kv_store import CoordinationError
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage import is_local
from tpujob_trainer.storage.tensorstore_bucket import kvstore_spec
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
"""How long after the time limit the other processes wait for process 0 to announce the result."""
LISTEN_SECONDS = 0.5
"""How often process 0, which runs the service, checks its clock while it waits for an outcome."""
HINT_SECONDS = 2.0
INDEX_SECONDS = 60.0
"""Limit for reading a committed step's index."""
CLOCK_SECONDS = 1.0
"""How much too early Orbax may time out: its limits are whole seconds."""
SHARED_BYTES = 1 << 20
"""Least bytes that a device writes of an array that others hold, too."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a save; the same on all processes."""

    commit: Commit | None = None
    problem: str = ""
    is_refused: bool = False
    """Whether storage refused the write, so that later saves would fail, too."""
    is_broken: bool = False
    """Whether a process could not write its part, so that this can never become a checkpoint."""


class PendingSave:
    """A started save, until all processes know its result."""

    def __init__(
        self,
        checkpointer: ocp.AsyncCheckpointer,
        directory: str,
        step: int,
        *,
        name: str,
        limit_seconds: float,
        runtime: Runtime,
        begun: float,
        arrays: int = 0,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Starts to watch the save of this many arrays. `name` is new for each save, and the same on all processes."""
        self.step = step
        self.outcome: Outcome | None = None
        self._seconds: float | None = None
        self._checkpointer = checkpointer
        self._directory = directory
        self._key = f"{name}/outcome"
        self._limit_seconds = limit_seconds
        self._runtime = runtime
        self._begun = begun
        self._arrays = arrays
        self._cancellation = cancellation or Cancellation()
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write, name=f"save-{step}", daemon=True)
        self._writer.start()
        threading.Thread(target=self._watch, name=f"commit-{step}", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome."""
        return self._over.is_set()

    @property
    def is_writing(self) -> bool:
        """Whether this process may still be writing the step: if storage stalls, also after the outcome."""
        return self._writer.is_alive()

    @property
    def elapsed(self) -> float:
        """Seconds from the start until the outcome, or until now."""
        return time.monotonic() - self._begun if self._seconds is None else self._seconds

    def wait(self, limit_seconds: float) -> bool:
        """Waits for the outcome, and after a commit up to 2 s for `latest.json`; returns whether there is one."""
        if not self._over.wait(limit_seconds):
            return False
        if self.outcome is not None and self.outcome.commit is not None:
            self._writer.join(HINT_SECONDS)
        return True

    def _write(self) -> None:
        try:
            self._checkpointer.wait_until_finished()
            if self._cancellation.cause:
                raise self._cancellation.cause  # noqa: TRY301
            if not self._runtime.is_lead:
                return
            if not layout.is_committed(self._directory, self.step):
                raise errors.TrainerError("it was written, and its commit marker is not there")  # noqa: TRY301
            # Older checkpoints are deleted next: a commit without all parts must not be the only one.
            if (found := _stored_arrays(self._directory, self.step)) < self._arrays:
                raise errors.TrainerError(f"its index has {found} of {self._arrays} arrays")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - whatever it is, it is announced to all
            if self._late() > -CLOCK_SECONDS and (isinstance(error, TimeoutError) or "DEADLINE_EXCEEDED" in str(error)):
                # Orbax has the same limit, and may notice first.
                self._say(Outcome(problem=self._too_late))
                return
            where = "" if self._runtime.num_processes == 1 else f"process {self._runtime.process_id}: "
            problem = (
                f"the disk of {self._directory} is full"
                if storage_errors.is_full(error)
                else storage_errors.brief(error)
            )
            is_refused = _is_refused(self._directory, error)
            self._say(Outcome(problem=where + problem, is_refused=is_refused, is_broken=True))
            return
        commit = Commit(self.step, time.time())
        if not self._say(Outcome(commit)):
            logger.warning("The checkpoint of step %d was committed after all, %.0f s late", self.step, self._late())
            return
        try:
            layout.write_latest(self._directory, commit)
        except OSError as error:
            logger.warning("Cannot write %s: %s", layout.LATEST, errors.brief(error))

    def _watch(self) -> None:
        outcome = self._heard()
        while outcome is None:
            if self._late() > (0 if self._runtime.is_lead else ANSWER_SECONDS):
                self._say(Outcome(problem=self._too_late))
                outcome = self._heard() or Outcome(problem=self._too_late)
            else:
                outcome = self._heard()
        self.outcome = outcome
        self._seconds = time.monotonic() - self._begun
        self._over.set()

    @property
    def _too_late(self) -> str:
        return f"not committed within {self._limit_seconds:g} s"

    def _late(self) -> float:
        return time.monotonic() - self._begun - self._limit_seconds

    def _say(self, outcome: Outcome) -> bool:
        """Announces a result to all processes, unless there is one already; returns whether it did."""
        talk = self._runtime.coordination
        try:
            if talk.num_processes == 1 and self._said(0) is not None:
                return False
            talk.set(self._key, json.dumps(dataclasses.asdict(outcome)))
        except CoordinationError:
            return False
        return True

    def _heard(self) -> Outcome | None:
        # The others make one request that waits for an outcome: one service answers thousands.
        limit = LISTEN_SECONDS if self._runtime.is_lead else ANSWER_SECONDS - self._late()
        try:
            return self._said(max(limit, LISTEN_SECONDS))
        except CoordinationError as error:
            return Outcome(problem=errors.brief(error))

    def _said(self, limit_seconds: float) -> Outcome | None:
        talk = self._runtime.coordination
        text = talk.look_for(self._key, limit_seconds=limit_seconds)
        if text is None:
            return None
        values = json.loads(text)
        return Outcome(**values | {"commit": Commit(**values["commit"]) if values["commit"] else None})


def _stored_arrays(directory: str, step: int) -> int:
    """The number of arrays that can be found in a step's files, as storage has them."""
    files = kvstore_spec(str(layout.folder(directory, step) / layout.STATE))
    index = tensorstore.KvStore.open({"driver": "ocdbt", "base": files}).result()
    return sum(name.endswith(b"/.zarray") for name in index.list().result(INDEX_SECONDS))


def _is_refused(directory: str, error: Exception) -> bool:
    """Whether later saves would be refused, too: this process may not write, or the bucket does not exist.

    A missing folder on a disk does not count: it is created again.
    """
    return storage_errors.is_refused(error) or (not is_local(directory) and storage_errors.is_missing(error))


def begin(
    directory: str, step: int, tree: Any, *, fingerprints: InFlight, metadata: dict[str, Any], name: str,
    limit_seconds: float, runtime: Runtime, confirm_claim: Callable[[], None] = lambda: None,
) -> PendingSave:  # fmt: skip
    """Starts a save, and returns it as soon as the tree is copied to host memory. All processes call it.

    Args:
        directory: The checkpoint directory.
        step: Of the state; the directory has no files of it.
        tree: Of arrays; they may be donated afterwards.
        fingerprints: Of the tree.
        metadata: JSON values.
        name: Of this save, never used before; the same on all processes.
        limit_seconds: For everything until the commit.
        runtime: Of this process.
        confirm_claim: Called on process 0, in the background, before anything is written and again before the commit;
            the save fails with what it raises.
    """
    begun = time.monotonic()
    _set_up_orbax()
    together = ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=name)
    # Without Orbax's checks of existing files: the training loop must not wait for storage.
    files = ocp.options.FileOptions(skip_sync_file_validations=True)
    timing = ocp.AsyncOptions(timeout_secs=max(int(limit_seconds), 1))
    each = ocp.CompositeOptions(multiprocessing_options=together, file_options=files, async_options=timing)
    cancellation = Cancellation()

    def give_up(error: Exception) -> None:
        if runtime.num_processes == 1:
            cancellation.cancel(checkpointer, error)

    checkpointer = ocp.AsyncCheckpointer(
        ocp.CompositeCheckpointHandler(composite_options=each),
        async_options=timing,
        multiprocessing_options=together,
        file_options=files,
        temporary_path_class=claimed_path(directory, confirm_claim, give_up),
    )
    items = {layout.STATE: ocp.args.StandardSave(tree), layout.FINGERPRINTS: fingerprint.Save(fingerprints)}
    try:
        checkpointer.save(
            epath.Path(layout.folder(directory, step)),
            args=ocp.args.Composite(**items),
            custom_metadata={**metadata, layout.STEP: step},
        )
    except BaseException:
        cancellation.failed()
        raise
    cancellation.begun()
    return PendingSave(
        checkpointer, directory, step, name=name, limit_seconds=limit_seconds, runtime=runtime, begun=begun,
        arrays=len(jax.tree.leaves(tree)), cancellation=cancellation,
    )  # fmt: skip


def _set_up_orbax() -> None:
    """Sets up Orbax: barriers through the coordination service, small arrays in one piece, and fewer log messages."""
    # To divide an array among the devices that hold copies of it, Orbax compiles a program for each shape.
    ocp.type_handlers.get_type_handler(jax.Array)._min_slice_bytes_for_replica_parallel = SHARED_BYTES  # noqa: SLF001
    flags = absl.flags.FLAGS
    flags.mark_as_parsed()
    # Its default barriers are device collectives without a limit; this flag is its only switch for that.
    flags["experimental_orbax_use_distributed_barrier"].value = True
    # Orbax logs forty lines for each save in each process, and fsspec one for each file of a bucket.
    for talkative in ("absl", "fsspec"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
