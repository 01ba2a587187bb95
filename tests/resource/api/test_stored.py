"""Whatever is stored can be read: what no spec or status may have counts as absent, the rest as it is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import Status
from tpujob_resource.models.stored import read_spec, read_status

TIME = "2030-01-01T12:00:00Z"
GOOD = {"type": "Running", "status": "True", "reason": "AllHostsReady", "lastTransitionTime": TIME}

SPECS: dict[str, tuple[object, dict[str, Any]]] = {
    "nothing": (None, {}),
    "no object": (["v4-8"], {}),
    "a good one": ({"accelerator": "v4-8", "queue": "q"}, {"accelerator": "v4-8", "queue": "q"}),
    "wrong types": ({"accelerator": 8, "suspend": "yes", "gracePeriodSeconds": "60"}, {}),
    "a field of no release": ({"queue": "q", "turbo": True}, {"queue": "q"}),
    "one variable of two": ({"env": [{"name": "A", "value": 1}, {"name": 3}]}, {"env": [{"name": "A"}]}),
    "inside an object": ({"restarts": {"crashes": "three"}}, {}),
    "both an amount's types wrong": ({"resources": {"limits": {"cpu": 1.5, "memory": "1Gi"}}}, {"memory": "1Gi"}),
    "bad key of a map": ({"podLabels": {"not a key": "x", "a": "b"}}, {"pod_labels": {"a": "b"}}),
}


@pytest.mark.parametrize(("stored", "read"), SPECS.values(), ids=SPECS.keys())
def test_what_no_spec_may_have_is_its_default(stored: object, read: dict[str, Any]) -> None:
    found = read_spec(stored).model_dump(exclude_defaults=True, exclude_none=True)
    if "resources" in found:
        found = found["resources"]["limits"]
    assert found == read


def test_defaults_are_those_of_the_resource() -> None:
    read = read_spec({})
    for name, field in Spec.model_fields.items():
        assert name == "accelerator" or getattr(read, name) == field.get_default(call_default_factory=True)


STATUSES: dict[str, tuple[object, dict[str, Any]]] = {
    "nothing": (None, {}),
    "no object": ("Running", {}),
    "a phase of a newer release": ({"phase": "Growing", "step": 3}, {"step": 3}),
    "fields of a newer release": ({"new": {"a": 1}, "failure": {"pod": "p", "more": 1}},) * 2,
    "a time without zone": (
        {"startTime": "2030-01-01T12:00:00", "progress": {"stepTime": TIME}},
        {"progress": {"stepTime": TIME}},
    ),
    "a time of nobody": ({"internal": {"restartTime": "9999-12-31T23:59:59Z"}}, {}),
    "one condition of three": ({"conditions": [{"type": "x"}, GOOD, 7]}, {"conditions": [GOOD]}),
    "a disruption without attempt": ({"internal": {"disruption": {"pod": "x"}}, "hosts": 2}, {"hosts": 2}),
    "one value of a map": (
        {"progress": {"goodput": {"a": "b", "training": 1}}},
        {"progress": {"goodput": {"training": 1}}},
    ),
    "a number for an object": ({"failure": 5, "ready": "1/2"}, {"ready": "1/2"}),
}


@pytest.mark.parametrize(("stored", "read"), STATUSES.values(), ids=STATUSES.keys())
def test_what_can_be_read_of_a_status_is_kept(stored: object, read: dict[str, Any]) -> None:
    assert read_status(stored).as_stored() == read


plain = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.just(TIME)
json_values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def fields_of(model: type[Spec] | type[Status]) -> st.SearchStrategy[dict[str, Any]]:
    names = [field.alias or name for name, field in model.model_fields.items()]
    return st.dictionaries(st.sampled_from(names) | st.text(max_size=5), json_values, max_size=8)


@settings(max_examples=300)
@given(spec=fields_of(Spec) | json_values, status=fields_of(Status) | json_values)
def test_anything_can_be_read(spec: Any, status: Any) -> None:
    read_spec(spec)
    Status.model_validate(read_status(status).as_stored())
