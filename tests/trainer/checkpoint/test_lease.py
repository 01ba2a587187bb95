"""On files, where TensorStore's conditional writes are the same; a bucket is in tests/multiprocess."""

import json
import threading

import pytest

from tools.localcluster.waiting import wait_for
from tpujob_trainer.checkpoint import lease
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.values import errors

LAPSE_SECONDS = 4.0
"""Many times longer than between two renewals: a busy machine may keep the holder waiting."""
NEVER = 1000.0


@pytest.fixture
def take(tmp_path):
    """A function that takes the lease of one directory; what it took is released at the end."""
    held = []

    def take(run, *, renew_seconds=0.1):
        found = lease.take(
            str(tmp_path), run=run, host="here", lapse_seconds=LAPSE_SECONDS, renew_seconds=renew_seconds
        )
        held.append(found)
        return found

    yield take
    for found in held:
        found.release()


def record(directory):
    return json.loads((directory / "lease.json").read_text())


def test_first_run_holds_it(take, tmp_path):
    take("1.0-aa").verify()
    assert record(tmp_path)["run"] == "1.0-aa"


@pytest.mark.parametrize(
    ("run", "second"),
    [("1.0-aa", "1.0-bb"), ("1.0-aa", "0.0-bb"), ("1.0.2-aa", "1.0.1-bb"), ("1.0.2-aa", "1.0-bb")],
    ids=["same attempt", "by hand", "earlier in place", "first in its containers"],
)
def test_second_run_is_refused_while_the_first_renews(take, run, second):
    first = take(run)
    with pytest.raises(
        errors.ConfigurationError, match=rf"another run is writing to .*: attempt {run}, process \d+ on"
    ):
        take(second)
    first.verify()


@pytest.mark.parametrize("renewed", [0.0, 1e12], ids=["behind", "ahead"])
def test_only_changes_show_that_a_run_lives(take, tmp_path, renewed):
    """Whatever the clock of its host says: two hosts' clocks may differ by any time."""
    bucket, is_over = open_bucket(str(tmp_path)), threading.Event()

    def live():
        beat = 0
        while not is_over.wait(0.1):
            beat += 1
            bucket.write("lease.json", json.dumps({"run": "1.0-aa", "holder": "aa", "renewed": renewed, "beat": beat}))

    bucket.write("lease.json", json.dumps({"run": "1.0-aa", "holder": "aa", "renewed": renewed}))
    holder = threading.Thread(target=live)
    holder.start()
    try:
        with pytest.raises(errors.ConfigurationError, match=r"another run is writing to .*: aa; end it first"):
            take("1.0-bb")
    finally:
        is_over.set()
        holder.join()
    take("1.0-bb").verify()
    assert record(tmp_path)["run"] == "1.0-bb"


def test_lease_of_a_dead_run_lapses(take, tmp_path):
    take("1.0-aa", renew_seconds=NEVER)
    take("1.0-bb").verify()
    assert record(tmp_path)["run"] == "1.0-bb"


def test_released_lease_is_free_at_once(take, tmp_path):
    take("1.0-aa").release()
    assert record(tmp_path)["released"] is True
    take("1.0-bb").verify()
    assert "released" not in record(tmp_path)


@pytest.mark.parametrize(
    ("run", "later"),
    [
        ("1.0-aa", "1.1-bb"),
        ("1.9-aa", "2.0-bb"),
        ("1.0-aa", "1.0.1-bb"),
        ("1.0.9-aa", "1.0.10-bb"),
        ("1.0.9-aa", "1.1-bb"),
    ],
    ids=["attempt", "incarnation", "in place", "in place again", "attempt after some in place"],
)
def test_later_attempt_takes_over_and_the_earlier_one_has_to_end(take, run, later):
    first = take(run)
    take(later).verify()
    wait_for("the first to notice", lambda: first.taken_by is not None)
    with pytest.raises(errors.ConfigurationError, match=f"another run has taken over .*: attempt {later}"):
        first.verify()


def test_holder_that_looks_knows_at_once(take):
    first = take("1.0-aa", renew_seconds=NEVER)
    first.confirm()
    take("1.1-bb").confirm()
    first.verify()
    with pytest.raises(errors.ConfigurationError, match=r"another run has taken over .*: attempt 1.1-bb"):
        first.confirm()


def test_removed_lease_is_taken_again(take, tmp_path):
    first = take("1.0-aa")
    (tmp_path / "lease.json").unlink()
    wait_for("the holder to write it again", (tmp_path / "lease.json").exists)
    first.verify()
    assert record(tmp_path)["run"] == "1.0-aa"


def test_holder_that_looks_takes_a_removed_lease_again_at_once(take, tmp_path):
    first = take("1.0-aa", renew_seconds=NEVER)
    assert not first.confirm()
    (tmp_path / "lease.json").unlink()
    assert first.confirm()
    assert record(tmp_path)["run"] == "1.0-aa"


def test_removed_lease_that_another_run_took_first_is_lost(take, tmp_path):
    first = take("1.0-aa", renew_seconds=NEVER)
    (tmp_path / "lease.json").unlink()
    take("1.0-bb")
    with pytest.raises(errors.ConfigurationError, match=r"another run has taken over .*: attempt 1.0-bb"):
        first.confirm()
