# ruff: noqa: E501 - a table
"""Wrong jobs: names, and fields that do not exist."""

from tests.operator.manifests import manifest
from tests.wrong_inputs.row import ARITHMETIC, Wrong

ROWS: dict[str, Wrong] = {
    "no spec": Wrong(
        {k: v for k, v in manifest().items() if k != "spec"},
        "spec: is missing",
        api="spec: Required value",
    ),
    "unknown field": Wrong(
        manifest(acelerator="v4-8"),
        "spec.acelerator: there is no such field; did you mean accelerator?",
        api='unknown field "spec.acelerator"',
    ),
    "a raw pod spec": Wrong(
        manifest(template={"spec": {"hostNetwork": True}}),
        "spec.template: there is no such field",
        api='unknown field "spec.template"',
    ),
    "privileges": Wrong(
        manifest(securityContext={"privileged": True}),
        "spec.securityContext: there is no such field",
        api='unknown field "spec.securityContext"',
    ),
    "50 characters": Wrong(
        manifest("a" * 50),
        'metadata.name: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" has more than 49 characters, and pods add theirs to it; shorten it',
    ),
    "a digit first": Wrong(
        manifest("3d"),
        'metadata.name: "3d" is not a DNS label; begin with a lower-case letter, go on with lower-case letters, digits and -, and do not end with -',
    ),
    "a dot": Wrong(
        manifest("a.b"),
        'metadata.name: "a.b" is not a DNS label; begin with a lower-case letter, go on with lower-case letters, digits and -, and do not end with -',
    ),
    "a super-slice with a long name": Wrong(
        manifest("a" * 29, accelerator="tpu7x:4x4x8", queue="q", placement={"superSlice": True}),
        'metadata.name: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa" has more than 28 characters, and the slice controller makes names of it; shorten it, or leave spec.placement.superSlice out',
    ),
    "another kind": Wrong(
        {**manifest(), "kind": "Pod"},
        "kind: \"Pod\" is not allowed; one of 'TpuTrainingJob'",
        api='kind: Invalid value: "Pod": must be TpuTrainingJob',
    ),
    "no spec again": Wrong(
        {**manifest(), "spec": None},
        "spec: null is not a mapping",
        api="spec: Required value",
    ),
    "snake case": Wrong(
        manifest(checkpoint_dir="/x"),
        "spec.checkpoint_dir: there is no such field; did you mean checkpointDir?",
        api='unknown field "spec.checkpoint_dir"',
    ),
    "a name too long for so many hosts": Wrong(
        manifest("a" * 49, accelerator="v5p-17920"),
        'metadata.name: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" has 49 characters; at most 48 for 2240 hosts, as pod names hold slice and host',
        later=ARITHMETIC,
    ),
    "a name with a dot": Wrong(
        manifest("llama.3"),
        'metadata.name: "llama.3" is not a DNS label; begin with a lower-case letter, go on with lower-case letters, digits and -, and do not end with -',
    ),
}
