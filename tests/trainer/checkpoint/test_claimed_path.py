"""The claim on a directory is confirmed beside the training, and before anything is written, committed or deleted."""

import asyncio
import threading

import jax.numpy as jnp
import pytest

from tools.localcluster.waiting import wait_for
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.lease import claimed_path
from tpujob_trainer.checkpoint.retention import Deleter, Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.values import errors

LIMIT_SECONDS = 60.0


class SlowClaim:
    """A claim whose storage answers when `answer` is set; the answer number `lost_at` says that it is lost."""

    def __init__(self, lost_at=0):
        self.asked, self.answer = 0, threading.Event()
        self.lost_at, self.is_lost = lost_at, False

    def verify(self):
        if self.is_lost:
            raise errors.ConfigurationError("another run has taken over")

    def confirm(self):
        self.asked += 1
        number = self.asked
        assert self.answer.wait(LIMIT_SECONDS)
        self.is_lost = self.is_lost or number == self.lost_at
        self.verify()


def checkpoints(directory, claim, *, keep=3):
    runtime = Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())
    return Checkpoints(
        str(directory),
        Settings(retention=Retention(last=keep)),
        runtime,
        claim=claim,
    )


def test_loop_goes_on_while_the_claim_is_confirmed(tmp_path):
    claim = SlowClaim()
    saver = checkpoints(tmp_path, claim)
    assert saver.save(1, {"w": jnp.ones(4)})  # returned, and nothing has answered
    saver.poll()
    assert layout.leftovers(tmp_path) == []
    claim.answer.set()
    assert saver.finish(LIMIT_SECONDS)
    assert layout.committed(tmp_path) == [1]


def test_claim_that_is_lost_before_the_folder_leaves_nothing(tmp_path):
    claim = SlowClaim(lost_at=1)
    claim.answer.set()
    path = claimed_path(str(tmp_path), claim.confirm).from_final(layout.folder(tmp_path, 1))
    with pytest.raises(errors.ConfigurationError, match="another run has taken over"):
        asyncio.run(path.create())
    assert list(tmp_path.iterdir()) == []


def test_claim_that_is_lost_before_the_marker_commits_nothing(tmp_path):
    claim = SlowClaim(lost_at=2)
    claim.answer.set()
    saver = checkpoints(tmp_path, claim)
    assert saver.save(1, {"w": jnp.ones(4)})
    with pytest.raises(errors.ConfigurationError, match="another run has taken over"):
        saver.finish(LIMIT_SECONDS)
    assert layout.committed(tmp_path) == []
    assert layout.leftovers(tmp_path) == [1]
    assert claim.asked == 2


def test_poll_ends_the_run_as_well(tmp_path):
    claim = SlowClaim(lost_at=2)
    saver = checkpoints(tmp_path, claim)
    assert saver.save(1, {"w": jnp.ones(4)})
    claim.answer.set()
    wait_for("the answer", lambda: claim.is_lost, timeout_seconds=LIMIT_SECONDS)
    with pytest.raises(errors.ConfigurationError, match="another run has taken over"):
        saver.poll()


def test_lost_claim_deletes_nothing(tmp_path):
    layout.folder(tmp_path, 5).mkdir(parents=True)
    for step in (5, 7):
        layout.folder(tmp_path, step).mkdir(parents=True, exist_ok=True)
    (layout.folder(tmp_path, 7) / layout.COMMITTED).write_text("of the successor")
    claim = SlowClaim(lost_at=1)
    claim.answer.set()
    deleter = Deleter(str(tmp_path), Retention(last=1), claim.confirm)
    deleter.discard(5)
    deleter.discard(7)
    deleter.tidy()
    assert deleter.wait(LIMIT_SECONDS)
    assert layout.leftovers(tmp_path) == [5]
    assert layout.committed(tmp_path) == [7]
