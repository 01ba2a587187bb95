"""The positions of all lanes as a state: what they are taken for, written, read and refused, and when they are over."""

import dataclasses
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.plan import LanePlan
from tpujob_trainer.data.stream.lane import LanePosition
from tpujob_trainer.data.stream.position import (
    STATE_COLUMNS,
    batches_digest,
    describe_data,
    has_ended,
    identity_of,
    pack_positions,
    require_same_batch_size,
    require_same_data,
    state_shape,
    unpack_state,
)
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.values.errors import ConfigurationError

PLAN = LanePlan(7, 4, 2, 0, 2)


def state(*epochs: int) -> np.ndarray:
    found = np.zeros((len(epochs), len(STATE_COLUMNS)), np.int32)
    found[:, STATE_COLUMNS.index("epoch")] = epochs
    return found


@pytest.mark.parametrize(
    ("epochs", "ended"),
    [((0, 0), False), ((2, 1), False), ((1, 2), False), ((2, 2), True), ((3, 2), True)],
    ids=["start", "first lane done", "second lane done", "all done", "one went on"],
)
def test_data_ends_with_its_longest_lane(epochs: tuple[int, ...], ended: bool) -> None:
    assert has_ended(state(*epochs), PLAN) is ended


def test_endless_data_never_ends() -> None:
    assert not has_ended(state(9, 9), dataclasses.replace(PLAN, epochs=None))


def described(plan: LanePlan) -> dict[str, str | int]:
    manifest, tokenizer = SimpleNamespace(fingerprint="f"), SimpleNamespace(fingerprint="t")
    return describe_data(cast("Manifest", manifest), cast("Tokenizer", tokenizer), plan, 16)


DESCRIPTION: dict[str, str | int] = {
    "data": "f",
    "tokenizer": "t",
    "seed": 0,
    "batchSize": 4,
    "sequenceLength": 16,
    "lanes": 2,
    "position": "by lane/1",
    "packing": "concat-and-split/1",
    "weights": "1",
    "epochs": 2,
}


def test_description_of_the_data_stays_what_it_is() -> None:
    """Another one would refuse the checkpoints that are there."""
    assert described(PLAN) == DESCRIPTION
    assert described(dataclasses.replace(PLAN, epochs=None))["epochs"] == 0
    assert described(dataclasses.replace(PLAN, blocks_attention=False))["packing"] == "concat-and-split/1/open"
    assert identity_of(DESCRIPTION) == 218_666_525
    assert batches_digest(np.arange(16, dtype=np.int32).reshape(2, 8)) == "dec19462962b2c96"


MIXED = LanePlan(9, 4, 2, 0, source_units=(range(4), range(4, 9)), weights=(0.5, 0.5))
POSITIONS = {
    (lane, source): LanePosition(lane, source, 3, 4, 5, 2**64 - 1 - lane) for lane in (0, 1) for source in (0, 1)
}


def packed(identity: int = 7) -> np.ndarray:
    rows = [[POSITIONS[lane, source].numbers() for source in (0, 1)] for lane in (0, 1)]
    return pack_positions(identity, np.array(rows)).reshape(state_shape(MIXED))


def test_positions_are_read_as_they_were_written() -> None:
    state = packed()
    assert state.shape == (2, 16)
    assert state.dtype == np.int32
    assert unpack_state(state, MIXED, 7) == POSITIONS


def test_state_of_another_run_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"shape \(2, 16\), this run needs \(2, 8\)"):
        unpack_state(packed(), PLAN, 7)
    other = packed()
    other[1, 8] = 8
    for state in (packed(8), other):
        with pytest.raises(ConfigurationError, match="belongs to other data"):
            unpack_state(state, MIXED, 7)


@pytest.mark.parametrize("column", [5, 13])
def test_lanes_that_are_not_at_the_same_batch_contradict_each_other(column: int) -> None:
    state = packed()
    state[1, column] += 1
    with pytest.raises(ConfigurationError, match="contradicts itself"):
        unpack_state(state, MIXED, 7)


@pytest.mark.parametrize("key", DESCRIPTION)
def test_what_was_changed_is_named(key: str) -> None:
    require_same_data(DESCRIPTION, DESCRIPTION)
    with pytest.raises(ConfigurationError, match=r"^spec\.trainer.* was 'other' when this run began and is"):
        require_same_data({**DESCRIPTION, key: "other"}, DESCRIPTION)


def test_batch_size_is_asked_first() -> None:
    require_same_batch_size({**DESCRIPTION, "lanes": 99}, 4)
    with pytest.raises(ConfigurationError, match="batchSize was 4 when this run began and is 8 now"):
        require_same_batch_size(DESCRIPTION, 8)
