"""Whose checkpoint directory it is. Nothing of another job is ever overwritten by a mistake in a path.

- `owner.json`, created only if absent: the job's namespace/name. A job that is deleted and applied again finds its own.
- `.lock`, on local paths: held by process 0 while it lives, so that two runs cannot write at once.
- `lease.json`, elsewhere: renewed by process 0 while it lives, for the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tpujob_trainer import errors
from tpujob_trainer.checkpoint import lease
from tpujob_trainer.checkpoint.lease import Lease
from tpujob_trainer.checkpoint.prior_run import LOCK, OWNER, owner_in, owner_problem
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.storage import Bucket, is_local, open_bucket, reachability
from tpujob_trainer.storage import errors as storage_errors

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 120.0
SLOW_SECONDS = 3.0
"""Storage that takes longer to answer at start is told of."""


@dataclasses.dataclass
class Claim:
    """The right to write to a directory; it ends with the process, or with `close`."""

    directory: str
    lock_descriptor: int | None = None
    lease: Lease | None = None

    def verify(self) -> None:
        """Returns while this run may write, as far as this process knows.

        Raises:
            ConfigurationError: another run has taken over.
        """
        if self.lease is not None:
            self.lease.verify()

    def confirm(self) -> None:
        """As `verify`, after a look at the storage. On process 0, which has the lease.

        Raises:
            ConfigurationError: another run has taken over.
        """
        if self.lease is not None:
            self.lease.confirm()

    def close(self) -> None:
        """Lets another run write."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None
        if self.lock_descriptor is not None:
            os.close(self.lock_descriptor)
            self.lock_descriptor = None


def claim(
    directory: str,
    *,
    owner: str,
    adopt: str | None,
    runtime: Runtime,
    notice: Callable[[str | None], None] = lambda message: None,
) -> Claim:
    """The directory, created if need be, for this job alone.

    Args:
        directory: Local path or gs:// address.
        owner: This job as "namespace/name".
        adopt: Whose directory may be taken over, as "namespace/name" (`spec.trainer.checkpoint.adopt`).
        runtime: All processes call this and end alike.
        notice: Is given what hinders while storage does not answer, and None when it is over; on process 0.

    Raises:
        ConfigurationError: it belongs to another job, or another run is writing to it.
        NotFoundError: it cannot be read or written.
    """
    held = Claim(directory)

    def decide() -> None:
        try:
            reachability.wait_until_reachable(directory, notice=notice)
            with _slowness(directory, notice):
                _take(held, owner=owner, adopt=adopt, runtime=runtime)
        except errors.TrainerError:
            raise
        except Exception as error:  # the libraries have classes of their own for what a bucket answers
            raise unusable(directory, error) from error

    runtime.coordination.lead_decides("claim", decide, limit_seconds=LIMIT_SECONDS)
    return held


def _take(held: Claim, *, owner: str, adopt: str | None, runtime: Runtime) -> None:
    directory = held.directory
    if is_local(directory):
        Path(directory).mkdir(parents=True, exist_ok=True)
        held.lock_descriptor = _lock(Path(directory))
    own(open_bucket(directory), owner, adopt)
    if not is_local(directory):
        held.lease = lease.take(directory, run=runtime.attempt_id, host=runtime.host)


@contextlib.contextmanager
def _slowness(directory: str, notice: Callable[[str | None], None]) -> Iterator[None]:
    """Gives notice when what is done here takes long."""
    timer = threading.Timer(SLOW_SECONDS, notice, [f"{directory} has not answered for {SLOW_SECONDS:.0f} s"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    notice(None)


def unusable(directory: str, error: Exception) -> errors.TrainerError:
    """What to say when the directory cannot be read or written."""
    # What comes from a bucket has no error number, and often no more text than an address.
    cause = error.strerror if isinstance(error, OSError) and error.strerror else errors.brief(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        return errors.ConfigurationError(
            f"spec.checkpointDir: {directory} is not a directory ({cause}); give a directory or a gs:// address"
        )
    if storage_errors.is_out_of_reach(error) and not storage_errors.is_refused(error):
        return errors.TrainerError(
            f"spec.checkpointDir: {directory} cannot be reached at present ({cause}); another attempt may succeed"
        )
    return errors.NotFoundError(
        f"spec.checkpointDir: {directory} cannot be read and written ({cause}); create it, "
        "or let the pods' service account read, create and delete objects there"
    )


def own(bucket: Bucket, owner: str, adopt: str | None) -> None:
    """Returns once the directory is known to be this job's; a new one becomes its own.

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


def _lock(directory: Path) -> int:
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 256).decode(errors="replace").strip() or "a process that has not said its name"
        os.close(descriptor)
        raise errors.ConfigurationError(
            f"spec.checkpointDir: another run is writing to {directory}: {holder}; end it first, "
            "or use another directory"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on host {os.uname().nodename}\n".encode(), 0)
    return descriptor
