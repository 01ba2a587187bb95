"""The state that a run continues from: newer copies on the hosts first, then the checkpoint directory."""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from tpujob_trainer.checkpoint import layout, local_restore
from tpujob_trainer.checkpoint import restore as checkpoint_restore
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.layout import Commit
from tpujob_trainer.checkpoint.local_copies import LocalCopies
from tpujob_trainer.checkpoint.one_slice import OneSlice, one_slice
from tpujob_trainer.checkpoint.restore import VOTE_SECONDS, Check, Restored
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.storage.errors import unusable

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Found:
    """What was restored, and the newest commit of the checkpoint directory."""

    restored: Restored
    newest: Commit


class Restorer:
    """Restores the same state on all processes."""

    def __init__(
        self,
        directory: str,
        runtime: Runtime,
        *,
        replica_axis: str | None,
        copies: LocalCopies | None,
        fingerprinter: Fingerprinter,
        name: Callable[[str], str],
    ) -> None:
        """Nothing is read yet.

        Args:
            directory: The checkpoint directory.
            runtime: Of this process.
            replica_axis: See `Settings`.
            copies: On the hosts; None: there are none.
            fingerprinter: Of the run.
            name: Returns a new name for an exchange between the processes.
        """
        self._directory = directory
        self._runtime = runtime
        self._replica_axis = replica_axis
        self._copies = copies
        self._fingerprinter = fingerprinter
        self._name = name

    def restore(self, abstract: Any, check: Check | None) -> Found | None:
        """The newest state that all processes can read; None: there is none.

        Raises:
            ConfigurationError: the checkpoint is of another model or optimizer.
            NotFoundError: storage refuses to be read.
            TrainerError: there are checkpoints, and none can be read, or storage is out of reach.
        """
        # Now, and not when the devices of all processes are about to exchange data.
        self._fingerprinter.compile(abstract)
        by_one = one_slice(abstract, self._replica_axis, process_id=self._runtime.process_id)
        if by_one is not None:
            by_one.compile()
        self._runtime.coordination.barrier(self._name("compiled"), limit_seconds=VOTE_SECONDS)
        return self._from_copies(abstract, by_one, check) or self._from_directory(abstract, by_one, check)

    def set_aside_from(self, step: int, reason: str) -> list[int]:
        """Sets the checkpoints of this and later steps aside, and discards the copies; returns those steps."""
        if self._copies is not None:
            # Before the checkpoints: if this attempt ends in between, the next one must not continue from a copy.
            self._copies.discard()
            self._runtime.coordination.barrier(self._name("discarded"), limit_seconds=VOTE_SECONDS)

        def set_aside() -> list[int]:
            found = [at for at in layout.committed(self._directory) if at >= step]
            for at in found:
                logger.warning("Set aside as %s: %s", layout.set_aside(self._directory, at, reason), reason)
            return found

        found: list[int] = self._runtime.coordination.lead_decides(
            self._name("aside"), set_aside, limit_seconds=VOTE_SECONDS
        )
        return found

    def _from_copies(self, abstract: Any, by_one: OneSlice | None, check: Check | None) -> Found | None:
        if self._copies is None:
            return None
        restored = local_restore.restore(
            self._copies,
            abstract,
            self._runtime,
            name=self._name("copies"),
            fingerprinter=self._fingerprinter,
            newest=self._newest,
            one_slice=by_one,
            check=check,
        )
        if restored is None:
            return None
        self._copies.discard(but=restored.step)
        newest = self._runtime.coordination.lead_decides(
            self._name("newest"), self._newest_commit, limit_seconds=VOTE_SECONDS
        )
        return Found(restored, Commit(*newest))

    def _from_directory(self, abstract: Any, by_one: OneSlice | None, check: Check | None) -> Found | None:
        restored = checkpoint_restore.restore(
            self._directory,
            abstract,
            self._runtime,
            name=self._name("restore"),
            fingerprinter=self._fingerprinter,
            check=check,
            one_slice=by_one,
        )
        if self._copies is not None:
            self._copies.discard()
        if restored is None:
            return None
        return Found(restored, Commit(restored.step, layout.committed_at(self._directory, restored.step)))

    def _newest(self) -> int | None:
        try:
            return next(iter(layout.committed(self._directory)), None)
        except Exception as error:
            raise unusable(self._directory, error) from error

    def _newest_commit(self) -> tuple[int, float]:
        step = self._newest()
        assert step is not None, "copies go on from a checkpoint"
        return step, layout.committed_at(self._directory, step)
