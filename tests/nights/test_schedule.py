"""A seed is one night; parts of it are nights, too; every kind of job and blow comes."""

from typing import Any

import pytest

from tests.nights.player import Player
from tests.nights.schedule import INFRASTRUCTURE, KINDS, NUMBERS, QUEUE, TO_A_JOB, make_night
from tpujob_resource.rules.load import load_job


def test_a_seed_is_one_night() -> None:
    assert make_night(7, seconds=600, jobs=60) == make_night(7, seconds=600, jobs=60)
    assert make_night(7, seconds=600, jobs=60).blows != make_night(8, seconds=600, jobs=60).blows


def test_everything_comes_in_a_few_nights() -> None:
    nights = [make_night(seed, seconds=600, jobs=60) for seed in range(10)]
    assert {job.kind for job in nights[0].jobs} == set(KINDS)
    assert {blow.kind for night in nights for blow in night.blows} == set(INFRASTRUCTURE) | set(TO_A_JOB)


@pytest.mark.parametrize("seed", range(5))
def test_blows_are_in_the_night_and_hit_what_is_there(seed: int) -> None:
    night = make_night(seed, seconds=300, jobs=10)
    names = {job.name for job in night.jobs}
    for blow in night.blows:
        assert 0 < blow.at < night.seconds
        assert (blow.target in names) == (blow.kind in TO_A_JOB)
        assert blow.number in NUMBERS.get(blow.kind, (0,))
        _, least, most = {**INFRASTRUCTURE, **TO_A_JOB}[blow.kind]
        assert least <= blow.seconds <= most
    assert 0.5 < len(night.blows) / 75 < 2


def test_a_part_of_a_night_has_the_jobs_that_are_hit() -> None:
    night = make_night(1, seconds=300, jobs=20)
    own = next(blow for blow in night.blows if blow.target)
    assert [job.name for job in night.with_blows([own]).jobs] == [own.target]
    shared = next(blow for blow in night.blows if not blow.target)
    assert night.with_blows([shared]).jobs == night.jobs


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_job_is_valid(kind: str) -> None:
    (job,) = make_night(1, seconds=60, jobs=1, kinds=(kind,)).jobs
    manifest: dict[str, Any] = {"metadata": {"name": job.name, "namespace": "night", "generation": 1}, "spec": job.spec}
    loaded = load_job({"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", **manifest})
    assert (loaded.spec.queue == QUEUE) == ("queued" in kind)


@pytest.mark.parametrize("kind", [*INFRASTRUCTURE, *TO_A_JOB])
def test_every_kind_of_blow_can_be_played(kind: str) -> None:
    what = kind.partition("-")[0]
    assert hasattr(Player, f"_{what}" if what in ("kill", "freeze") else f"_{kind.replace('-', '_')}")
