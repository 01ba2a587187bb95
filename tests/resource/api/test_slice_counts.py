"""With how many slices a job may run, and what contradicts its least number."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.errors import InvalidJob
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.slice_counts import possible_counts, shrink_after_seconds
from tpujob_resource.rules.table import SHRINK_AFTER_SECONDS

TRAINER: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "/data"}, "steps": 10}


def elastic(**fields: Any) -> dict[str, Any]:
    """Four slices of two devices; keywords replace fields of the spec."""
    spec = {"accelerator": "cpu:2x1", "slices": 4, "minSlices": 2, "checkpointDir": "/checkpoints"}
    return manifest(**{**spec, **fields})


def commanded(**fields: Any) -> dict[str, Any]:
    """The same with a command, of which the rows are not known."""
    return elastic(image="example.com/image", command=["train"], trainer=None, **fields)


def trained(rows: int, **fields: Any) -> dict[str, Any]:
    """The same with a batch of so many rows."""
    return elastic(image=None, command=None, trainer={**TRAINER, "batchSize": rows}, **fields)


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (commanded(), (4, 3, 2)),
        (commanded(minSlices=1), (4, 3, 2, 1)),
        (elastic(minSlices=4), (4,)),
        (elastic(minSlices=None), (4,)),
        (elastic(minSlices=None, slices=None), (1,)),
        (trained(24), (4, 3, 2)),
        (trained(16), (4, 2)),
        (trained(16, minSlices=1), (4, 2, 1)),
        (trained(8, minSlices=4), (4,)),
    ],
    ids=[
        "a command",
        "down to one",
        "all are needed",
        "no least number",
        "one slice",
        "rows for each count",
        "no rows for three",
        "down to one, no rows for three",
        "rows for all",
    ],
)
def test_counts_over_which_the_rows_divide_are_possible(body: dict[str, Any], counts: tuple[int, ...]) -> None:
    assert possible_counts(load_job(body)) == counts


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        (elastic(shrinkAfterSeconds=599, startupSeconds=600), []),
        (elastic(shrinkAfterSeconds=600, startupSeconds=600), ["is not less than startupSeconds"]),
        (elastic(startupSeconds=SHRINK_AFTER_SECONDS), ["is not less than startupSeconds"]),
        (elastic(startupSeconds=SHRINK_AFTER_SECONDS + 1), []),
        (trained(16, minSlices=3), ["devices of 3 slices; 1, 2 would do"]),
        (trained(8, minSlices=3), ["devices of 3 slices; 1, 2 would do"]),
        (trained(24, minSlices=3), []),
        (trained(18, slices=3, minSlices=2, accelerator="cpu:6x1"), ["2 slices; 1 would do"]),
        (trained(14, slices=7, minSlices=6), ["6 slices; 1 would do"]),
        (trained(15, minSlices=2), ["batchSize: 15 rows do not divide over 8 devices"]),
        (trained(16, accelerator="v5e-5", checkpointDir="gs://bucket/x"), ["spec.accelerator"]),
        (elastic(minSlices=5), ["5 is more than slices; lower it"]),
        (elastic(slices=2), []),
        (elastic(slices=1, minSlices=1), ["needs slices, and at least 2"]),
    ],
    ids=[
        "a wait just short enough",
        "a wait as long as the hosts have",
        "the usual wait is too long",
        "the usual wait is short enough",
        "no rows for the least count",
        "others would do",
        "rows for the least count",
        "one would do",
        "one of many would do",
        "no rows for all slices",
        "another problem comes first",
        "more than there are",
        "two of two",
        "one of one",
    ],
)
def test_what_contradicts_the_least_count_is_named(body: dict[str, Any], problems: list[str]) -> None:
    try:
        load_job(body)
    except InvalidJob as error:
        found = list(error.problems)
    else:
        found = []
    assert len(found) == len(problems), found
    assert all(said in problem for said, problem in zip(problems, found, strict=True)), found


def test_wait_for_slices_may_be_none() -> None:
    assert shrink_after_seconds(load_job(elastic(shrinkAfterSeconds=7)).spec) == 7
    assert shrink_after_seconds(load_job(elastic()).spec) == SHRINK_AFTER_SECONDS
