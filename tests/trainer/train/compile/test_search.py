"""Layouts are compared by arithmetic, and the best that fit once compiled are ranked by their least time."""

from collections.abc import Mapping
from typing import Any

import pytest

from tpujob_trainer.model.chips import CHIPS
from tpujob_trainer.model.mesh.cost import mesh_cost
from tpujob_trainer.train.compile.changes import Change, Place, with_changes
from tpujob_trainer.train.compile.search import COMPILED, FITTING, Layout, best_compiled, layouts


def block(preset: str, rows: int, length: int = 8192, **fields: Any) -> dict[str, Any]:
    data = {"path": "gs://bucket/data", "tokenizer": "gs://bucket/tokenizer"}
    size = {"batchSize": rows, "sequenceLength": length, "steps": 100}
    return {"model": {"preset": preset}, "data": data, **size, **fields}


def place(generation: str, devices: int, slices: int = 1) -> Place:
    return Place(devices=devices, slices=slices, vocabulary=256, chip=CHIPS[generation])


def found(job: dict[str, Any], where: Place) -> list[Layout]:
    return layouts(where.resolved(job), where.chip, devices=where.devices)


JOBS = {
    "llama3-70b, v5p-256": (block("llama3-70b", 128), place("v5p", 128)),
    "mixtral-8x7b, v5p-64": (block("mixtral-8x7b", 32), place("v5p", 32)),
    "gemma2-9b, v6e-32": (block("gemma2-9b", 64), place("v6e", 32)),
    "llama3-8b, 2 x v5e-64": (block("llama3-8b", 256), place("v5e", 128, slices=2)),
    "llama2-7b by hand": (block("llama2-7b", 40, mesh={"fsdp": 8, "tensor": 2}), place("v5p", 16)),
}


@pytest.mark.parametrize(("job", "where"), JOBS.values(), ids=JOBS)
def test_each_layout_is_the_same_training_and_can_be_written(job: dict[str, Any], where: Place) -> None:
    run = where.resolved(job)
    compared = found(job, where)
    assert compared
    for layout in compared:
        other = where.resolved(with_changes(job, layout.changes))
        assert (other.batch_size, other.steps, other.sequence_length) == (
            run.batch_size,
            run.steps,
            run.sequence_length,
        )
        assert other.optimizer == run.optimizer
        rows = other.batch_size // other.gradient_accumulation
        run_of = {"rows": rows, "length": other.sequence_length, "parts": other.gradient_accumulation}
        # The mesh that was compared is the one that the job gets: none with `context`, by fewer rows at once.
        assert other.mesh.context == 1
        assert mesh_cost(other.model, other.mesh, where.chip, **run_of).peak == layout.peak_bytes
        assert (other.mesh.sizes, other.model.remat, other.model.remat_save, other.gradient_accumulation) != (
            run.mesh.sizes,
            run.model.remat,
            run.model.remat_save,
            run.gradient_accumulation,
        )
    assert len({layout.changes for layout in compared}) == len(compared)
    assert [layout.seconds for layout in compared] == sorted(layout.seconds for layout in compared)


def test_memory_bounds_what_is_compared() -> None:
    job = block("llama3-8b", 16)
    few, many = found(job, place("v5e", 16)), found(job, place("v5p", 16))
    assert len(few) < len(many)
    assert all(layout.peak_bytes < CHIPS["v5e"].hbm_bytes for layout in few)


def test_less_recomputation_is_preferred_where_it_fits() -> None:
    best = found(block("llama3-8b", 32, 4096), place("v5p", 16))[0]
    assert Change("model.remat", "none") in best.changes


@pytest.mark.parametrize(
    "fields",
    [{"mesh": {"context": 2}}, {"model": {"preset": "llama3-8b", "rematOffload": ["input"]}}],
    ids=["context", "offloading"],
)
def test_what_the_arithmetic_does_not_know_is_not_compared(fields: dict[str, Any]) -> None:
    assert found({**block("llama3-8b", 16), **fields}, place("v5p", 16)) == []


def seconds_of(compared: list[Layout], *changes: Change) -> float:
    return next(layout.seconds for layout in compared if layout.changes == changes)


def test_what_costs_time_is_in_the_seconds() -> None:
    """Recomputing attention; and gathers, once for each part of a batch."""
    compared = found(block("llama3-8b", 64, 1024), place("v5p", 16))
    dots, none = (seconds_of(compared, Change("model.remat", remat)) for remat in ("dots", "none"))
    assert none < dots < seconds_of(compared, Change("model.rematSave", ("attention",)))
    two, four = (seconds_of(compared, Change("gradientAccumulation", parts)) for parts in (2, 4))
    assert two < four
    saved = seconds_of(compared, Change("model.rematSave", ("attention",)), Change("gradientAccumulation", 2))
    assert saved < two


def test_sinks_and_biases_of_heads_are_not_divided() -> None:
    compared = found(block("gpt-oss-20b", 64), place("v5p", 64))
    assert compared
    assert not any(change.field == "mesh.tensor" for layout in compared for change in layout.changes)


def test_what_a_job_keeps_by_name_can_be_left_out() -> None:
    job = block("llama3-8b", 16)
    job["model"]["rematSave"] = ["attention"]
    full = [layout for layout in found(job, place("v5p", 16)) if layout.changes == (Change("model.rematSave", None),)]
    assert len(full) == 1
    assert "rematSave" not in with_changes(job, full[0].changes)["model"]


def parts(number: int) -> Layout:
    return Layout(changes=(Change("gradientAccumulation", number),), seconds=float(number), peak_bytes=1.0)


def test_shortest_that_fits_is_first() -> None:
    seconds = {None: 4.0, 2: 3.0, 4: 1.0, 8: 2.0, 16: 5.0, 32: 0.5}
    tried = []

    def compile_block(job: Mapping[str, Any]) -> dict[str, Any]:
        tried.append(job.get("gradientAccumulation"))
        return {"fits": tried[-1] != 4, "ideal_step_seconds": seconds[tried[-1]]}

    job = block("llama3-8b", 64)
    ranked = best_compiled(job, [parts(number) for number in (2, 4, 8, 16, 32)], compile_block)
    assert tried == [None, 2, 4, 8, 16]
    assert [[str(change) for change in each.changes] for each in ranked] == [
        ["gradientAccumulation: 8"],
        ["gradientAccumulation: 2"],
        [],
        ["gradientAccumulation: 16"],
        ["gradientAccumulation: 4"],
    ]
    assert len(tried) == 2 + FITTING


def test_compiling_ends_when_none_fits() -> None:
    ranked = best_compiled(
        block("llama3-8b", 64),
        [parts(number) for number in range(2, 20)],
        lambda job: {"fits": False, "ideal_step_seconds": 1.0},
    )
    assert len(ranked) == 1 + COMPILED
