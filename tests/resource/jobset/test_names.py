"""Names within the limits of DNS: every job that is accepted gets pods that Kubernetes accepts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operator.manifests import manifest
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SUFFIX = "-abcde"
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,58}[a-z0-9])?", fullmatch=True)
SHAPES = st.sampled_from(
    [
        {"accelerator": "cpu:1x1"},
        {"accelerator": "cpu:11x1", "slices": 12},
        {"accelerator": "v5e-256", "slices": 100},
        {"accelerator": "v5e-16", "slices": 101},
        {"accelerator": "v5p-17920"},
        {"accelerator": "v6e-1", "workers": 4096},
    ]
)


@settings(max_examples=25)
@given(name=NAMES, shape=SHAPES)
def test_accepted_names_fit_and_refused_ones_do_not(name: str, shape: dict[str, object]) -> None:
    try:
        job = load_job(manifest(name, **shape))
    except InvalidJob as refusal:
        assert all(problem.startswith("metadata.name: ") for problem in refusal.problems)  # noqa: PT017 — either is right
        return
    pods = expand_pods(build_jobset(job, JobSettings()))
    assert max(len(pod.name + SUFFIX) for pod in pods) <= 63
    assert all(LABEL.fullmatch(pod.name) for pod in pods)
    assert len({pod.name for pod in pods}) == len(pods) == job.hosts
    assert len(job.metadata.name) <= 49


@pytest.mark.parametrize(("length", "fits"), [(49, True), (50, False)])
def test_49_characters_fit_100_slices_of_64_hosts(length: int, fits: bool) -> None:
    given_job = manifest("a" * length, accelerator="v5e-256", slices=100)
    if fits:
        load_job(given_job)
    else:
        with pytest.raises(InvalidJob, match=r"metadata\.name"):
            load_job(given_job)


@settings(max_examples=100)
@given(name=st.text(max_size=60))
def test_any_text_as_a_name_is_judged(name: str) -> None:
    if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 49:
        load_job(manifest(name))
    else:
        with pytest.raises(InvalidJob, match=r"metadata\.name"):
            load_job(manifest(name))
