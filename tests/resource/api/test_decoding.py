"""One object of a list is no reason not to read the others, and what is too deep or too large is named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob_resource.models import decoding
from tpujob_resource.models.decoding import MAX_LEVELS, MAX_SPEC_BYTES, UNREADABLE, decoded, is_deep, readable
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob

LEVELS = [MAX_LEVELS + 1, 500, 1_100, 3_000, 9_000]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{}é\x00', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\[]{', max_size=3), inner, max_size=3),
)


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * levels + "1" + closing * levels


def manifest(arguments: str = "{}", **fields: Any) -> str:
    """A job as JSON, with this JSON in a free-form field."""
    head = '{"apiVersion":"tpujob.dev/v1beta1","kind":"TpuTrainingJob","metadata":{"name":"llama","namespace":"team"}'
    more = "".join(f',"{key}":{json.dumps(value)}' for key, value in fields.items())
    return f'{head},"spec":{{"accelerator":"v5e-4","trainer":{{"model":{{"arguments":{arguments}}}}}{more}}}}}'


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[0,{"]}\\\\\\"":', ',"[":1},2]')])
def test_deep_object_of_a_list_is_named_and_others_are_whole(levels: int, opening: str, closing: str) -> None:
    deep, plain = manifest(nested(levels, opening, closing)), manifest('{"text":"}]\\\\\\"{["}')
    page = decoded(f'{{"items":[{plain},{deep},{plain}]}}'.encode())
    first, found, last = map(readable, page["items"])
    assert first == last == json.loads(plain)
    assert found["metadata"] == {"name": "llama", "namespace": "team"}
    assert found["spec"] == {"accelerator": "v5e-4"}
    [problem] = found[UNREADABLE]
    assert problem.startswith("spec.trainer: has more than 32 lists and mappings within each other")
    with pytest.raises(InvalidJob, match=r"spec\.trainer: has more than 32"):
        load_job(found)


@pytest.mark.parametrize("levels", LEVELS[:2])
def test_deep_field_of_a_file_is_refused(levels: int) -> None:
    with pytest.raises(InvalidJob, match=r"spec\.trainer: has more than 32"):
        load_job(json.loads(manifest(nested(levels))))


def test_deepest_allowed_field_is_kept() -> None:
    # `trainer` and `model` are two of the levels.
    assert UNREADABLE not in readable(json.loads(manifest(nested(MAX_LEVELS - 2))))
    assert UNREADABLE in readable(json.loads(manifest(nested(MAX_LEVELS - 1))))


@pytest.mark.parametrize("size", [MAX_SPEC_BYTES, 1_200_000])
def test_large_spec_is_named_and_not_kept(size: int) -> None:
    found = readable(json.loads(manifest(json.dumps({"a": "z" * size}), suspend=True)))
    assert found["spec"] == {"accelerator": "v5e-4", "suspend": True}
    assert len(json.dumps(found)) < 1000
    with pytest.raises(
        InvalidJob, match=r"spec\.trainer: the spec is \d+ bytes of JSON, \d+ of them here; at most 65536"
    ):
        load_job(found)


@pytest.mark.parametrize(
    "metadata", [{"labels": {f"l{n}": "x" * 60 for n in range(2000)}}, {"finalizers": ["x/y"] * 20_000}]
)
def test_large_metadata_is_named_and_the_spec_is_kept(metadata: dict[str, Any]) -> None:
    job = json.loads(manifest())
    found = readable({**job, "metadata": {**job["metadata"], **metadata}})
    assert (found["metadata"], found["spec"]) == (job["metadata"], job["spec"])
    assert found[UNREADABLE][0].startswith(f"metadata.{next(iter(metadata))}: the metadata is ")


def test_what_others_noted_in_metadata_is_neither_kept_nor_counted() -> None:
    job = json.loads(manifest())
    noted = {"annotations": {"a": "x" * 200_000}, "managedFields": json.loads(nested(40))}
    assert readable({**job, "metadata": {**job["metadata"], **noted}}) == job


@given(JSON)
def test_cutting_changes_nothing_that_is_shallow(value: Any) -> None:
    assert json.loads(decoding._cut(json.dumps(value, ensure_ascii=False).encode())) == value


@given(JSON, st.integers(60, 70))
def test_depth_is_that_of_the_deepest_value(value: Any, levels: int) -> None:
    around = [[]] if not is_deep(value, 0) else [value]
    for _ in range(levels - 1):
        around = [around, "]"]
    assert is_deep(decoded(json.dumps(around).encode()))


def test_what_is_no_json_is_an_error() -> None:
    for document in (b"<html>", b"", b'{"a":', b"[" * 5000, b'{"a": 1}}'):
        with pytest.raises(ValueError, match=r".|^$"):
            decoded(document)


def test_of_annotations_only_that_of_multikueue_is_kept() -> None:
    """All others are somebody else's, and as large as people write them."""
    name = "kueue.x-k8s.io/prebuilt-workload-name"
    metadata = {"name": "llama", "namespace": "a", "annotations": {name: "w", "note": "x" * 2**17}}
    assert readable({"metadata": metadata})["metadata"] == {**metadata, "annotations": {name: "w"}}
    del metadata["annotations"][name]  # type: ignore[attr-defined]
    assert "annotations" not in readable({"metadata": metadata})["metadata"]
