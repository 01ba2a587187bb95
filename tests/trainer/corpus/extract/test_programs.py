"""Losses, vectors and continuations of rows of different lengths, beside what transformers says of each alone."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.corpus.extract.make_reference import FOLDER as ACTIVATIONS
from tests.trainer.corpus.extract.rows_apart import one_to_a_sequence
from tests.trainer.model.weights.make_reference import FOLDER, PROMPT
from tests.trainer.model.weights.test_load import load
from tpujob_trainer.corpus.extract.batches import Batch as Packed
from tpujob_trainer.corpus.extract.completions import FINISHED, LENGTH, TEXT, TOKENS, completions_program, readable
from tpujob_trainer.corpus.extract.layers import Site, sites_of
from tpujob_trainer.corpus.extract.programs import (
    COLUMN,
    LOSS,
    PERPLEXITY,
    SCORED,
    TOKEN_LOSSES,
    activations_program,
    embeddings_program,
    scores_program,
)
from tpujob_trainer.corpus.extract.rows import Rows
from tpujob_trainer.corpus.extract.sequences import filled
from tpujob_trainer.corpus.extract.units import UnitValues
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.train.evaluation import make_evaluation_step
from tpujob_trainer.train.step import Batch

pytestmark = pytest.mark.usefixtures("compiled_once")

LENGTHS = np.array([12, 7, 1, 12, 2, 0, 9, 12], dtype=np.int32)
"""The last but two is a row of padding."""
NEVER = 10_000
"""A token that no model of these writes."""


def _rows(length=16):
    tokens = np.zeros((len(LENGTHS), length), dtype=np.int32)
    for row, count in zip(tokens, LENGTHS, strict=True):
        row[:count] = PROMPT[:count]
    return tokens


@functools.cache
def _loaded(name):
    return load(FOLDER / name, MeshShape(fsdp=2))


@pytest.fixture(scope="module")
def qwen():
    return _loaded("qwen2")


def _expected(name):
    return json.loads((FOLDER / name / "expected.json").read_text())


def _values(outputs):
    """By column; one value of each row is `[B, ...]` here, where a sequence has one row."""
    found = {column: np.asarray(kept["values"]) for column, kept in outputs.items()}
    return {column: x[:, 0] if x.shape[1] == 1 else x for column, x in found.items()}


@pytest.mark.parametrize("name", ["qwen2", "gemma2"])
def test_losses_equal_transformers(name):
    found = _values(scores_program(*_loaded(name), per_token=True)(one_to_a_sequence(_rows(), LENGTHS)))
    logits = jnp.array(_expected(name)["logits"])
    losses = -np.asarray(jax.nn.log_softmax(logits))[np.arange(len(PROMPT) - 1), PROMPT[1:]]
    for row, count in enumerate(LENGTHS):
        assert found[SCORED][row] == max(0, count - 1)
        if count < 2:
            assert np.isnan(found[LOSS][row])
            continue
        np.testing.assert_allclose(found[LOSS][row], losses[: count - 1].mean(), rtol=2e-4)
        np.testing.assert_allclose(found[PERPLEXITY][row], np.exp(losses[: count - 1].mean()), rtol=1e-3)
        np.testing.assert_allclose(found[TOKEN_LOSSES][row, 1:count], losses[: count - 1], rtol=1e-3, atol=2e-5)
        assert np.isnan(found[TOKEN_LOSSES][row, 0])


def test_losses_equal_those_of_an_evaluation(qwen):
    model, weights = qwen
    tokens = _rows()
    positions = np.broadcast_to(np.arange(16), tokens.shape)
    batch = Batch(
        inputs=jnp.array(tokens),
        targets=jnp.roll(tokens, -1, axis=1),
        positions=jnp.array(positions),
        segment_ids=jnp.zeros_like(tokens),
        loss_mask=jnp.array(positions < LENGTHS[:, None] - 1),
        signals=jnp.zeros((len(tokens), 4), jnp.int32),
    )
    evaluated = make_evaluation_step(model)(weights, batch)
    found = _values(scores_program(model, weights, per_token=False)(one_to_a_sequence(tokens, LENGTHS)))
    np.testing.assert_array_equal(found[SCORED], evaluated.tokens)
    is_scored = found[SCORED] > 0
    sums = (found[LOSS] * found[SCORED])[is_scored]
    np.testing.assert_allclose(sums, np.asarray(evaluated.losses)[is_scored], rtol=1e-6)


@pytest.mark.parametrize(("positions", "normalize"), [("mean", True), ("last", False)])
def test_vectors_equal_transformers(qwen, positions, normalize):
    model, weights = qwen
    program = embeddings_program(
        model, weights, Site(model.shape.layers), positions=positions, normalize=normalize, dtype="float32"
    )
    found = _values(program(one_to_a_sequence(_rows(), LENGTHS)))[COLUMN]
    with np.load(ACTIVATIONS / "qwen2.npz") as expected:
        hidden = expected["norm"]
    for row, count in enumerate(LENGTHS):
        if count == 0:
            continue
        wanted = hidden[:count].mean(axis=0) if positions == "mean" else hidden[count - 1]
        wanted = wanted / np.linalg.norm(wanted) if normalize else wanted
        np.testing.assert_allclose(found[row], wanted, rtol=1e-4, atol=2e-5)


@functools.cache
def _completions(name, ends, temperature):
    return completions_program(*_loaded(name), tokens=8, temperature=temperature, seed=7, ends=ends)


def _continued(tokens, lengths, *, name="qwen2", ends=(NEVER,), temperature=0.0, samples=None):
    """By eight tokens."""
    return _values(_completions(name, ends, temperature)(one_to_a_sequence(tokens, lengths, samples)))


@pytest.mark.parametrize("name", ["qwen2", "gemma2"])
def test_continuations_equal_transformers(name):
    wanted = _expected(name)["generated"]
    found = _continued(_rows(), LENGTHS, name=name)
    for row in np.flatnonzero(len(PROMPT) == LENGTHS):
        assert found[TOKENS][row].tolist()[: len(wanted)] == wanted[:8]


def test_continuation_does_not_depend_on_its_neighbours():
    together = _continued(_rows(), LENGTHS)[TOKENS]
    for count in (1, 2, 7, 9):
        tokens = np.zeros((8, 16), dtype=np.int32)
        tokens[:, :count] = PROMPT[:count]
        alone = _continued(tokens, np.full(8, count, dtype=np.int32))[TOKENS]
        assert together[count == LENGTHS].tolist() == alone[:1].tolist()


def test_continuation_ends_with_its_text():
    endless = _continued(_rows(), LENGTHS)
    free = endless[TOKENS][0].tolist()
    found = _continued(_rows(), LENGTHS, ends=(NEVER, free[3]))
    until = free.index(free[3])
    assert found[LENGTH][0] == until
    assert found[TOKENS][0].tolist() == free[: until + 1] + [NEVER] * (7 - until)
    columns = readable(found, lambda ids: "-".join(map(str, ids)))
    assert columns[TOKENS].to_pylist()[0] == free[:until]
    assert columns[TEXT].to_pylist()[0] == "-".join(map(str, free[:until]))
    assert columns[FINISHED].to_pylist()[0]
    assert readable(endless, str)[FINISHED].to_pylist()[0] is False


def test_continuation_ends_before_a_stop_string():
    found = _continued(_rows(), LENGTHS)
    free = found[TOKENS][0].tolist()
    columns = readable(found, lambda ids: "-".join(map(str, ids)), stop=(f"-{free[3]}",))
    assert columns[TOKENS].to_pylist()[0] == free[: free.index(free[3]) + 1]
    assert columns[TEXT].to_pylist()[0] == "-".join(map(str, free[: free.index(free[3])]))
    assert columns[FINISHED].to_pylist()[0]
    # Also where it is a special token, which is in no text.
    marked = readable(found, lambda ids: "", stop=(str(free[3]),), spell=lambda ids: "".join(map(str, ids)))
    assert marked[FINISHED].to_pylist()[0]


def test_choice_depends_on_the_sample_alone():
    samples = np.array([5, 1, 2, 3, 4, 0, 6, 9], dtype=np.int32)
    found = _continued(_rows(), LENGTHS, temperature=2.0, samples=samples)[TOKENS]
    order = np.array([3, 1, 2, 0, 4, 5, 6, 7])
    again = _continued(_rows(), LENGTHS, temperature=2.0, samples=samples[order])[TOKENS]
    assert again[3].tolist() == found[0].tolist()
    assert found[0].tolist() != found[3].tolist(), "rows with the same tokens were given the same choice"


def _packed(rows, most):
    """Two sequences of all rows, and one of nothing."""
    lengths = np.array([len(row) for row in rows])
    starts = np.cumsum(lengths) - lengths
    unit = Rows(0, np.arange(2 * len(rows)), np.concatenate(rows * 2), np.tile(lengths, 2), {})
    count = len(rows)
    where = (np.repeat([0, 1], count), np.tile(starts, 2), np.tile(np.arange(count), 2))
    batch = Packed(np.arange(2 * count), *where, length=int(lengths.sum()) + 3, size=8)
    return unit, batch, filled(unit, batch, np.arange(2 * count), most)


@pytest.mark.parametrize(("name", "positions"), [("gemma2", "all"), ("qwen2", "last"), ("qwen2", "mean")])
def test_packed_rows_have_the_values_that_they_have_alone(name, positions):
    model, weights = _loaded(name)
    program = activations_program(
        model, weights, sites_of([0, "last"], ["residual"], model.shape.layers), positions=positions, dtype="float32"
    )
    scores = scores_program(model, weights, per_token=True)
    counts = [9, 1, 12, 4]
    rows = [np.array(PROMPT[:count], np.int32) for count in counts]
    unit, batch, sequences = _packed(rows, 5)
    apart = one_to_a_sequence(_rows(), LENGTHS)
    made = UnitValues(unit, program.per_token | scores.per_token)
    made.add(batch, {**program(sequences), **scores(sequences)})
    alone = {column: np.asarray(kept["values"]) for column, kept in {**program(apart), **scores(apart)}.items()}
    for column, values in made.columns.items():
        is_per_token = column in program.per_token | scores.per_token
        ends = np.cumsum(unit.lengths) if is_per_token else np.arange(1, len(unit.lengths) + 1)
        for number, count in enumerate(counts * 2):
            # All rows begin alike, so the values of the longest are those of any.
            of = alone[column][0, :count] if is_per_token else None
            if of is None:
                shorter = np.zeros((8, 16), np.int32)
                shorter[:, :count] = PROMPT[:count]
                alike = one_to_a_sequence(shorter, np.full(8, count, np.int32))
                of = np.asarray({**program(alike), **scores(alike)}[column]["values"])[0, 0][None]
            width = len(of)
            found = values[ends[number] - width : ends[number]]
            np.testing.assert_allclose(found, of, rtol=2e-4, atol=2e-5, err_msg=f"{column} of row {number}")
