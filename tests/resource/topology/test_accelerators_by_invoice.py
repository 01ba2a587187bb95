"""Accelerators as people and invoices name them: what each comes to in a job."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob
from tpujob_resource.topology.parse import ACCELERATOR_LABEL, COUNT_LABEL, TOPOLOGY_LABEL

V3, V5E, V6E = "tpu-v3-slice", "tpu-v5-lite-podslice", "tpu-v6e-slice"
# accelerator, slices: (label, topology, chips per host, hosts per slice, JAX devices per host, machine, note)
ROWS: dict[tuple[str, int], tuple[Any, ...]] = {
    ("v3-8", 1): ("tpu-v3-device", "2x2", 4, 1, 8, "ct3-hightpu-4t", "v3-8 is 4 chips on 1 host"),
    ("v3-32", 1): (V3, "4x4", 4, 4, 8, "ct3p-hightpu-4t", "v3-32 is 16 chips on 4 hosts (v3 names count cores)"),
    ("v3:32x32", 1): (V3, "32x32", 4, 256, 8, "ct3p-hightpu-4t", None),
    ("v4-8", 1): ("tpu-v4-podslice", "2x2x1", 4, 1, 4, "ct4p-hightpu-4t", "v4-8 is 4 chips on 1 host"),
    ("v4-16", 1): ("tpu-v4-podslice", "2x2x2", 4, 2, 4, "ct4p-hightpu-4t", "for 16 chips ask for v4-32"),
    ("v5e-8", 1): (V5E, "2x4", 8, 1, 8, "ct5lp-hightpu-8t", "v5e-8 is 8 chips on 1 host (ct5lp-hightpu-8t)"),
    ("v5e-16", 1): (V5E, "4x4", 4, 4, 4, "ct5lp-hightpu-4t", None),
    ("v5e-64", 1): (V5E, "8x8", 4, 16, 4, "ct5lp-hightpu-4t", None),
    ("v5e-128", 1): (V5E, "8x16", 4, 32, 4, "ct5lp-hightpu-4t", None),
    ("v5e-256", 1): (V5E, "16x16", 4, 64, 4, "ct5lp-hightpu-4t", None),
    ("v5e-8", 2): (V5E, "2x4", 4, 2, 4, "ct5lp-hightpu-4t", "v5e-8 is 8 chips on 2 hosts"),
    ("v6e-8", 1): (V6E, "2x4", 8, 1, 8, "ct6e-standard-8t", "v6e-8 is 8 chips on 1 host"),
    ("v6e-8", 16): (
        *(V6E, "2x4", 4, 2, 4, "ct6e-standard-4t"),
        "v6e-8 is 8 chips on 2 hosts (ct6e-standard-4t), as GKE joins only slices of several hosts",
    ),
    ("v6e-8", 32): (V6E, "2x4", 4, 2, 4, "ct6e-standard-4t", "as GKE joins only slices of several hosts"),
    ("v6e:2x4", 16): (V6E, "2x4", 4, 2, 4, "ct6e-standard-4t", "as GKE joins only slices of several hosts"),
}


@pytest.mark.parametrize(("name", "slices"), ROWS, ids=str)
def test_a_name_is_the_machines_that_it_stands_for(name: str, slices: int) -> None:
    label, topology, chips, hosts, devices, machine, note = ROWS[name, slices]
    job = load_job(manifest(accelerator=name, slices=slices))
    accelerator = job.accelerator
    assert (accelerator.chips_per_host, accelerator.hosts_per_slice, accelerator.devices_per_host) == (
        chips,
        hosts,
        devices,
    )
    assert accelerator.machine_type == machine
    assert (accelerator.note is None) == (note is None)
    assert (note or "") in (accelerator.note or "")
    jobset = build_jobset(job, JobSettings())
    (workers,) = jobset["spec"]["replicatedJobs"]
    pod = workers["template"]["spec"]["template"]["spec"]
    assert (workers["replicas"], workers["template"]["spec"]["parallelism"]) == (slices, hosts)
    assert pod["nodeSelector"][ACCELERATOR_LABEL] == label
    assert pod["nodeSelector"][TOPOLOGY_LABEL] == topology
    assert pod["nodeSelector"].get(COUNT_LABEL) in (None, str(chips))
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": chips}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"accelerator": "v3-32", "slices": 2}, "spec.slices: v3 has no multislice"),
        ({"accelerator": "v3-32", "capacity": {"flexStart": True}}, "v3 is not offered with flex-start"),
        ({"accelerator": "v3-16"}, '"v3-16" would be 8 chips'),
        ({"accelerator": "v2-8"}, "v2 has no GKE node pools"),
        (
            {"accelerator": "v6e-8", "slices": 2, "nodeSelector": {COUNT_LABEL: "8"}},
            "spec.slices: GKE joins only slices of several hosts",
        ),
    ],
    ids=str,
)
def test_what_a_machine_cannot_do_is_refused_by_its_reason(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        load_job(manifest(**spec))
    assert words in "\n".join(refusal.value.problems)
