"""One process on its own; several are in tests/multiprocess."""

import concurrent.futures

import pytest

from tests.key_values import KeyValuesOfOne
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.values import errors


def test_single_process_receives_its_own_message():
    talk = kv_store.alone()
    talk.set("key", "value")
    assert talk.get("key", limit_seconds=0) == "value"
    assert talk.lead_decides_on("vote", {"ok": True}, list, limit_seconds=0) == [0]
    assert talk.lead_decides("step", lambda: [3, 2], limit_seconds=0) == [3, 2]
    assert talk.objections("vote", None, limit_seconds=0) == {}
    assert talk.objections("vote", {"problem": "x"}, limit_seconds=0) == {0: {"problem": "x"}}
    talk.barrier("end", limit_seconds=0)


def test_alone_does_not_wait_for_ever():
    with pytest.raises(kv_store.CoordinationError, match="nobody said key"):
        kv_store.alone().get("key", limit_seconds=60)


def test_error_of_the_lead_is_marked_as_everybodys():
    def fail():
        raise errors.NotFoundError("no bucket")

    with pytest.raises(errors.NotFoundError, match="no bucket") as caught:
        kv_store.alone().lead_decides("claim", fail, limit_seconds=0)
    assert caught.value.is_shared


@pytest.mark.parametrize(
    "error",
    [
        errors.TrainerError("a"),
        errors.ConfigurationError("b"),
        errors.NotFoundError("c"),
        errors.DivergedError("d"),
        errors.PeersMissingError("e"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_survives_the_way(error):
    back = errors.from_dict(errors.to_dict(error))
    assert (type(back), str(back), back.exit_code) == (type(error), str(error), error.exit_code)


def test_error_of_a_subclass_becomes_its_public_kind():
    back = errors.from_dict(errors.to_dict(kv_store.CoordinationError("gone")))
    assert (type(back), back.exit_code) == (errors.TrainerError, 1)


@pytest.mark.parametrize("against", [{}, {3: "no bucket"}, {0: "bad", 7: "out of reach"}])
def test_only_objections_are_sent(against):
    service = KeyValuesOfOne(64)
    hosts = [f"host-{number}" for number in range(64)]
    talks = [kv_store.Coordination(service, process_id=number, hosts=hosts) for number in range(64)]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        found = list(
            pool.map(lambda talk: talk.objections("read/3", against.get(talk.process_id), limit_seconds=20), talks)
        )
    assert found == [against] * 64
    # Each of the others asks process 0's word; what is said grows with the objections, not with the processes.
    assert service.questions == len(against) + 1 + 63
    assert service.bytes <= 64 * (20 + 30 * len(against))


def test_of_many_objections_those_that_matter_most_are_kept():
    service = KeyValuesOfOne(64)
    talks = [kv_store.Coordination(service, process_id=number, hosts=["host"] * 64) for number in range(64)]

    def vote(talk):
        own = {"problem": "bad", "is_out_of_reach": talk.process_id == 63}
        return talk.objections("v", own, limit_seconds=20, rank=lambda vote: not vote["is_out_of_reach"])

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        found = list(pool.map(vote, talks))
    assert all(sorted(each) == [*range(19), 63] for each in found)
    assert service.bytes < 64 * (60 + 20 * 60)


def test_who_did_not_come_to_a_barrier_is_named():
    talk = kv_store.Coordination(KeyValuesOfOne(3, absent=[1, 2]), process_id=0, hosts=["a", "b", "c"])
    with pytest.raises(kv_store.CoordinationError) as caught:
        talk.lead_decides_on("ready", 1, len, limit_seconds=0.1)
    assert "process 1 on host b, process 2 on host c did not come; DEADLINE_EXCEEDED" in str(caught.value)
