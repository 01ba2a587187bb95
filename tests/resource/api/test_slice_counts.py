"""With how many slices a job may run, and what contradicts its least number."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.slice_counts import possible_counts, shrink_after_seconds
from tpujob_resource.rules.table import SHRINK_AFTER_SECONDS
from tpujob_resource.topology.errors import InvalidJob

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
        pytest.param(commanded(), (4, 3, 2), id="a command"),
        pytest.param(commanded(minSlices=1), (4, 3, 2, 1), id="down to one"),
        pytest.param(elastic(minSlices=4), (4,), id="all are needed"),
        pytest.param(elastic(minSlices=None), (4,), id="no least number"),
        pytest.param(elastic(minSlices=None, slices=None), (1,), id="one slice"),
        pytest.param(trained(24), (4, 3, 2), id="rows for each count"),
        pytest.param(trained(16), (4, 2), id="no rows for three"),
        pytest.param(trained(16, minSlices=1), (4, 2, 1), id="down to one, no rows for three"),
        pytest.param(trained(8, minSlices=4), (4,), id="rows for all"),
    ],
)
def test_counts_over_which_the_rows_divide_are_possible(body: dict[str, Any], counts: tuple[int, ...]) -> None:
    assert possible_counts(load_job(body)) == counts


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        pytest.param(elastic(shrinkAfterSeconds=599, startupSeconds=600), [], id="a wait just short enough"),
        pytest.param(
            elastic(shrinkAfterSeconds=600, startupSeconds=600),
            ["is not less than startupSeconds"],
            id="a wait as long as the hosts have",
        ),
        pytest.param(
            elastic(startupSeconds=SHRINK_AFTER_SECONDS),
            ["is not less than startupSeconds"],
            id="the usual wait is too long",
        ),
        pytest.param(elastic(startupSeconds=SHRINK_AFTER_SECONDS + 1), [], id="the usual wait is short enough"),
        pytest.param(
            trained(16, minSlices=3), ["devices of 3 slices; 1, 2 would do"], id="no rows for the least count"
        ),
        pytest.param(trained(8, minSlices=3), ["devices of 3 slices; 1, 2 would do"], id="others would do"),
        pytest.param(trained(24, minSlices=3), [], id="rows for the least count"),
        pytest.param(
            trained(18, slices=3, minSlices=2, accelerator="cpu:6x1"), ["2 slices; 1 would do"], id="one would do"
        ),
        pytest.param(trained(14, slices=7, minSlices=6), ["6 slices; 1 would do"], id="one of many would do"),
        pytest.param(
            trained(15, minSlices=2), ["batchSize: 15 rows do not divide over 8 devices"], id="no rows for all slices"
        ),
        pytest.param(
            trained(16, accelerator="v5e-5", checkpointDir="gs://bucket/x"),
            ["spec.accelerator"],
            id="another problem comes first",
        ),
        pytest.param(elastic(minSlices=5), ["5 is more than slices; lower it"], id="more than there are"),
        pytest.param(elastic(slices=2), [], id="two of two"),
        pytest.param(elastic(slices=1, minSlices=1), ["needs slices, and at least 2"], id="one of one"),
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
