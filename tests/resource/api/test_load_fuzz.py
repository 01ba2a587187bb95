"""Whatever is written into a resource, it is judged: accepted and made into a JobSet, or refused in sentences."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operator.manifests import container_manifest, manifest
from tests.resource.api.test_load import GOOD
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.models.spec import Spec
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob

FIELDS = [field.alias or name for name, field in Spec.model_fields.items()]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(FIELDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ACCELERATORS = st.from_regex(r"(v4|v5e|v5p|v6e|tpu7x|cpu|v5litepod)[-:][0-9]{1,3}(x[0-9]{1,2}){0,3}", fullmatch=True)


def _judge(given_manifest: dict[str, Any]) -> None:
    try:
        job = load_job(given_manifest)
    except InvalidJob as refusal:
        problems = refusal.problems
    else:
        problems = ()
        pods = expand_pods(build_jobset(job, JobSettings()))
        json.dumps([pods[0].environ, pods[-1].argv])
        assert len(pods) == job.hosts
    assert all("\n" not in problem and ": " in problem for problem in problems)


@settings(max_examples=300)
@given(field=st.sampled_from(FIELDS), value=VALUES)
def test_any_value_of_a_field_is_judged(field: str, value: Any) -> None:
    base = container_manifest() if field in ("image", "command", "args") else manifest()
    base["spec"][field] = value
    _judge(base)


@settings(max_examples=100)
@given(
    name=st.sampled_from(sorted(GOOD)), extra=st.dictionaries(st.sampled_from([*FIELDS, "typo"]), VALUES, max_size=4)
)
def test_any_set_of_values_is_judged(name: str, extra: dict[str, Any]) -> None:
    _judge({**GOOD[name], "spec": {**GOOD[name]["spec"], **extra}})


@settings(max_examples=50)
@given(top=st.dictionaries(st.sampled_from(["apiVersion", "kind", "metadata", "spec", "status", "x"]), VALUES))
def test_any_manifest_is_judged(top: dict[str, Any]) -> None:
    _judge({**manifest(), **top})


@settings(max_examples=120)
@given(accelerator=ACCELERATORS)
def test_any_accelerator_is_judged(accelerator: str) -> None:
    _judge(manifest(accelerator=accelerator))
