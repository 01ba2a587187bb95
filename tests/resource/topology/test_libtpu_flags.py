"""Compiler flags by generation, and how a job's own flags replace them."""

import pytest

from tpujob_resource.topology.libtpu_flags import FLAGS, by_generation, merge_flags, recommended_flags
from tpujob_resource.topology.tables import GENERATIONS


def test_every_flag_is_of_known_generations_and_has_a_source() -> None:
    assert {name for flag in FLAGS for name in flag.generations} <= {*GENERATIONS}
    assert all(flag.source and flag.effect and flag.value for flag in FLAGS)


@pytest.mark.parametrize("generation", by_generation())
def test_a_generation_has_each_flag_once(generation: str) -> None:
    names = [flag.name for flag in recommended_flags(generation, 2)]
    assert len(names) == len({*names})


def test_flags_between_slices_are_for_several_slices_alone() -> None:
    one, two = (recommended_flags("v6e", slices) for slices in (1, 2))
    assert {flag.name for flag in two} - {flag.name for flag in one} == {
        "xla_tpu_enable_data_parallel_all_reduce_opt",
        "xla_tpu_data_parallel_opt_different_sized_ops",
    }


def test_fusion_that_libtpu_refuses_is_left_out_outside_v5e() -> None:
    fused = "xla_tpu_enable_async_collective_fusion"
    assert [name for name, flags in by_generation().items() if fused in {flag.name for flag in flags}] == ["v5e"]


def test_a_generation_without_a_recipe_has_no_flags() -> None:
    assert recommended_flags("v3", 1) == ()


# own value of LIBTPU_INIT_ARGS: the whole value, of v4 with one slice
MERGED = {
    "nothing": ("", "--xla_enable_async_all_gather=true --xla_enable_async_collective_permute=true"),
    "another flag": (
        "--mine=1",
        "--xla_enable_async_all_gather=true --xla_enable_async_collective_permute=true --mine=1",
    ),
    "a flag of ours": (
        "--xla_enable_async_all_gather=false",
        "--xla_enable_async_collective_permute=true --xla_enable_async_all_gather=false",
    ),
    "flags without a value": (
        "--noxla_enable_async_all_gather  --xla_enable_async_collective_permute",
        "--noxla_enable_async_all_gather --xla_enable_async_collective_permute",
    ),
    "a longer name": (
        "--xla_enable_async_all_gather_more=1",
        (
            "--xla_enable_async_all_gather=true --xla_enable_async_collective_permute=true "
            "--xla_enable_async_all_gather_more=1"
        ),
    ),
}


@pytest.mark.parametrize("name", MERGED)
def test_own_flags_win_one_by_one(name: str) -> None:
    own, whole = MERGED[name]
    assert merge_flags(recommended_flags("v4", 1), own) == whole
