"""Every wrong job: who refuses it, and what they say. Four runners ask the readers.

| reader | runner |
|---|---|
| the API server, by the schema and CEL | tests/scenes/control_plane/test_admission.py |
| the operator | tests/resource/api/test_refusals.py |
| `tpujob render`, `tpujob check` | tests/cli/test_wrong_inputs.py |
| the trainer | tests/trainer/config/test_wrong_inputs.py |

docs/reference/refusals.md is made of the rows (`make generate`).

The files beside this one have a row for each job, by its name:

    of: the valid job that it is, in BASES; default: small where `trainer` is given, else pretrain
    name: of the job
    spec: fields that are otherwise; null removes one
    trainer: fields of the `trainer` block that are otherwise; null removes one
    says, api, later: see `Wrong`
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tests.wrong_inputs.examples import block_example
from tests.wrong_inputs.row import ARITHMETIC, BUDGET, Job, Wrong
from tpujob_contract.field_rules import broken_rules
from tpujob_resource.crd.build import is_too_costly
from tpujob_resource.rules.trainer_rules import block_rules

FILES = ("names", "slices", "machines", "pods", "storage", "trainer")
SMALL = {**TRAINER, "data": {"path": "data/*.parquet"}}
BASES: dict[str, Callable[..., Job]] = {
    "pretrain": manifest,
    "small": functools.partial(manifest, name="job", accelerator="cpu:2x1", trainer=SMALL),
    "container": container_manifest,
    "image": functools.partial(container_manifest, name="job", accelerator="cpu:2x1", image="a/b:1", command=["train"]),
}
LATER = {None: None, "arithmetic": ARITHMETIC}


def _job(row: dict[str, Any]) -> Job:
    base, fields = row.get("of", "small" if "trainer" in row else "pretrain"), {**row.get("spec", {})}
    if "name" in row:
        fields["name"] = row["name"]
    if "trainer" in row:
        block = {**(SMALL if base == "small" else TRAINER), **row["trainer"]}
        fields["trainer"] = {key: value for key, value in block.items() if value is not None}
    return BASES[base](**fields)


def _of_files() -> dict[str, Wrong]:
    found: dict[str, Wrong] = {}
    for file in FILES:
        for name, row in yaml.safe_load((Path(__file__).parent / f"{file}.yaml").read_text()).items():
            says = [row["says"]] if isinstance(row["says"], str) else row["says"]
            found[name] = Wrong(_job(row), *says, api=row.get("api"), later=LATER[row.get("later")])
    return found


TOO_LARGE = "of them here; at most 65536, as every pod repeats it: put data in the image, a ConfigMap or the bucket"
COMPUTED = {
    "no spec": Wrong(
        {key: value for key, value in manifest().items() if key != "spec"},
        "spec: is missing",
        api="spec: Required value",
    ),
    "no spec again": Wrong({**manifest(), "spec": None}, "spec: null is not a mapping", api="spec: Required value"),
    "another kind": Wrong(
        {**manifest(), "kind": "Pod"},
        "kind: \"Pod\" is not allowed; one of 'TpuTrainingJob'",
        api='kind: Invalid value: "Pod": must be TpuTrainingJob',
    ),
    "a very long accelerator": Wrong(
        manifest(accelerator="v" * 10000),
        f'spec.accelerator: "{"v" * 58}… is too long; at most 32 characters',
        api="spec.accelerator: Too long: may not be more than 32 bytes",
    ),
    "too many arguments": Wrong(
        container_manifest(args=["x"] * 513),
        f"spec.args: [{', '.join(['"x"'] * 12)}… has 513 entries; at most 512",
        api="spec.args: Too many: 513: must have at most 512 items",
    ),
    "a megabyte of arguments": Wrong(
        container_manifest(args=["x" * 8000] * 100),
        f"spec.args: the spec is 800452 bytes of JSON, 800400 {TOO_LARGE}",
        api="spec",
    ),
    "a lot of environment": Wrong(
        manifest(env=[{"name": f"A{i}", "value": "x" * 30000} for i in range(3)]),
        f"spec.env: the spec is 90186 bytes of JSON, 90087 {TOO_LARGE}",
        api="spec",
    ),
    "too many variables": Wrong(
        manifest(env=[{"name": f"A{i}"} for i in range(129)]),
        'spec.env: [{"name": "A0"}, {"name": "A1"}, {"name": "A2"}, {"name": "… has 129 entries; at most 128',
        api="spec.env: Too many: 129: must have at most 128 items",
    ),
    "a huge trainer block": Wrong(
        manifest(trainer={**TRAINER, "extra": "x" * 70000}),
        "spec.trainer.extra: there is no such field; did you mean extract?",
        f"spec.trainer: the spec is 70112 bytes of JSON, 70103 {TOO_LARGE}",
        api='unknown field "spec.trainer.extra"',
    ),
    "a block too large": Wrong(
        manifest("job", accelerator="cpu:2x1", trainer={**TRAINER, "data": {"path": "x" * 70_000}}),
        f"spec.trainer: the spec is 70073 bytes of JSON, 70064 {TOO_LARGE}",
        api="spec.trainer.data.path: Too long: may not be more than 8192 bytes",
    ),
}
"""Those that no file can hold."""
WRITTEN: dict[str, Wrong] = {**_of_files(), **COMPUTED}
"""Written by hand; they name everything that is wrong with the job."""


def _of_block_rules() -> dict[str, Wrong]:
    """An example of each rule that the trainer publishes."""
    found: dict[str, Wrong] = {}
    for rule in block_rules():
        block = block_example(rule)
        (sentence,) = broken_rules(block, [rule])
        name = f"rule {len(found)}: {rule.at} {rule.field}"
        later = BUDGET if is_too_costly(rule) else None
        found[name] = Wrong(manifest(accelerator="cpu:1x1", trainer=block), f"spec.trainer.{sentence}", later=later)
    return found


WRONG = {**WRITTEN, **_of_block_rules()}
