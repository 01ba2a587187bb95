"""The ownership of a checkpoint directory, so that a wrong path never overwrites the files of another job.

- `owner.json`, created only if absent: the job's namespace/name. A job that is deleted and applied again still owns it.
- `.lock`, on local paths: held by process 0 while it lives, so that two runs cannot write at once.
- `lease.json`, elsewhere: renewed by process 0 while it lives, for the same purpose.
"""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tpujob_trainer.checkpoint import layout, lease
from tpujob_trainer.checkpoint.lease import Lease
from tpujob_trainer.checkpoint.lock import OWNER, Lock, owner_in, owner_problem
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.storage import Bucket, is_local, open_bucket, pattern_problem, reachability
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 120.0
SLOW_SECONDS = 3.0
"""Storage that takes longer to answer at start is logged."""


class Claim:
    """The right to write to a directory; it ends with the process, or with `close`."""

    def __init__(self, directory: str, owner: str = "", hold: Lock | Lease | None = None) -> None:
        """The claim of a job.

        Args:
            directory: The claimed directory.
            owner: The job as namespace/name.
            hold: The lock or lease that keeps other runs out; only on process 0.
        """
        self.directory = directory
        self._owner = owner
        self._hold = hold
        self._kept: list[tuple[str, Callable[[], None]]] = []
        self._gone: set[str] = set()
        """Kept files to write again, also after a failed try: OWNER, which tells that they are gone, is back then."""
        self._lost: errors.ConfigurationError | None = None
        self._looking = threading.Lock()

    def verify(self) -> None:
        """Returns if this run may write, as far as this process knows.

        Raises:
            ConfigurationError: another run has taken over.
        """
        if self._lost is not None:
            raise self._lost
        if self._hold is not None:
            self._hold.verify()

    def confirm(self) -> None:
        """Like `verify`, but checks storage first, and writes missing files again. On process 0.

        Raises:
            ConfigurationError: another run has taken over.
        """
        if self._hold is None:
            return
        with self._looking:
            try:
                self._look(self._hold)
            except errors.ConfigurationError as error:
                self._lost = error
            except OSError as error:  # storage does not answer, which the save will notice
                logger.debug("Cannot look at the claim to %s: %s", self.directory, storage_errors.brief(error))
        self.verify()

    def require_directory(self) -> None:
        """Returns if the file that the claim wrote is still in the directory. On process 0.

        Raises:
            NotFoundError: it is gone, or can no longer be read.
            TrainerError: storage does not answer.
        """
        if self._hold is None:
            return
        try:
            is_there = open_bucket(self.directory).look(OWNER) is not None
        except Exception as error:
            raise unusable(self.directory, error) from error
        if not is_there:
            raise errors.NotFoundError(
                f"spec.checkpointDir: {OWNER} of this run is gone from {self.directory}, and maybe its checkpoints "
                "with it; put the directory back, or delete it and start the job anew"
            )

    def keep(self, name: str, write: Callable[[], None]) -> None:
        """Registers a file that `confirm` writes again if it is gone with the directory."""
        self._kept.append((name, write))

    def close(self) -> None:
        """Releases the claim, so that another run can write."""
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def _look(self, hold: Lock | Lease) -> None:
        bucket = open_bucket(self.directory)
        is_retaken = hold.confirm()
        is_gone = bucket.look(OWNER) is None
        self._gone |= {name for name, _ in self._kept if is_gone}
        own(bucket, self._owner, None)
        if is_retaken or is_gone:
            logger.warning("Files of this run are gone from %s: they are written again", self.directory)
        for name, write in self._kept:
            if name in self._gone or (is_local(self.directory) and not (Path(self.directory) / name).exists()):
                write()
                self._gone.discard(name)
                logger.warning("Wrote %s/%s again", self.directory, name)


def claim(
    directory: str,
    *,
    owner: str,
    adopt: str | None,
    runtime: Runtime,
    notice: Callable[[str | None], None] = lambda message: None,
) -> Claim:
    """The claim of this job to a directory, which is created if it is missing.

    Args:
        directory: Local path or gs:// address.
        owner: This job as "namespace/name".
        adopt: The job whose directory may be taken over, as "namespace/name" (`spec.trainer.checkpoint.adopt`).
        runtime: All processes call this, with the same result.
        notice: Called with the problem while storage does not answer, and with None when it answers; on process 0.

    Raises:
        ConfigurationError: it belongs to another job, or another run is writing to it.
        NotFoundError: it cannot be read or written.
    """
    hold: list[Lock | Lease] = []

    def decide() -> None:
        if problem := pattern_problem(directory):
            raise errors.ConfigurationError(f"spec.checkpointDir: {directory} {problem}; leave them out")
        try:
            reachability.wait_until_reachable(directory, notice=notice)
            with _slowness(directory, notice):
                hold.append(_take(directory, owner=owner, adopt=adopt, runtime=runtime))
        except errors.TrainerError:
            raise
        except Exception as error:  # libraries raise their own classes for a bucket's answers
            raise unusable(directory, error) from error

    runtime.coordination.lead_decides("claim", decide, limit_seconds=LIMIT_SECONDS)
    return Claim(directory, owner, hold[0] if hold else None)


def _take(directory: str, *, owner: str, adopt: str | None, runtime: Runtime) -> Lock | Lease:
    if not is_local(directory):
        own(open_bucket(directory), owner, adopt)
        return lease.take(directory, run=runtime.attempt_id, host=runtime.host)
    lock = Lock(directory)
    try:
        own(open_bucket(directory), owner, adopt)
        _require_room(directory)
    except BaseException:
        lock.release()
        raise
    return lock


def _require_room(directory: str) -> None:
    """Returns if the disk has room for a checkpoint as large as the newest one, without what the run deletes at start.

    Raises:
        TrainerError: it has not: no save would be committed, and older checkpoints are deleted only after a commit.
    """
    steps = layout.committed(directory)
    if not steps:
        return
    kept, root = {str(step) for step in steps}, Path(directory)
    remains = [root / layout.TRASH, *(path for path in (root / layout.STEPS).iterdir() if path.name not in kept)]
    disk = os.statvfs(directory)
    room = disk.f_bfree * disk.f_frsize + sum(map(_disk_bytes, remains))
    if room < (needed := _disk_bytes(Path(layout.folder(directory, steps[0])))):
        raise errors.TrainerError(
            f"spec.checkpointDir: the disk of {directory} has room for {room / 1e6:.1f} MB, and the checkpoint of step "
            f"{steps[0]} takes {needed / 1e6:.1f} MB; make room there, another attempt may succeed"
        )


def _disk_bytes(folder: Path) -> int:
    """What a folder takes up on its disk."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


@contextlib.contextmanager
def _slowness(directory: str, notice: Callable[[str | None], None]) -> Iterator[None]:
    """Calls `notice` if the body takes long."""
    timer = threading.Timer(SLOW_SECONDS, notice, [f"{directory} has not answered for {SLOW_SECONDS:.0f} s"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    notice(None)


def own(bucket: Bucket, owner: str, adopt: str | None) -> None:
    """Returns if the directory belongs to this job; a new directory is assigned to it.

    Raises:
        ConfigurationError: it belongs to another job.
        OSError: storage cannot be reached.
    """
    text = json.dumps({"owner": owner}) + "\n"
    if bucket.look(OWNER) is None and bucket.create(OWNER, text) is not None:
        logger.info("The checkpoint directory %s is new, and belongs to %s", bucket.url, owner)
        return
    present = owner_in(bucket.read(OWNER))
    problem = owner_problem(bucket.url, present, owner, adopt)
    if problem is not None:
        raise errors.ConfigurationError(problem)
    if present != owner:
        bucket.write(OWNER, text)
        logger.warning("The checkpoint directory %s belonged to %s, and is adopted by %s", bucket.url, present, owner)
