"""What is allowed in a job and probably not meant, each said in one sentence that names the field."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.warnings import job_warnings, submission_warnings

EXAMPLES = Path(__file__).parents[3] / "examples"
TPU: dict[str, Any] = {"accelerator": "v5e-16", "checkpointDir": "gs://bucket/run"}
VOLUME = {"name": "data", "mountPath": "/data", "persistentVolumeClaim": "data"}


def data(**fields: Any) -> dict[str, Any]:
    return {**TRAINER, "data": fields}


def maxtext(*words: str, **spec: Any) -> dict[str, Any]:
    return container_manifest(
        **TPU, framework="maxtext", command=["maxtext-train", "tokenizer_path=t.model", *words], **spec
    )


CASES: dict[str, tuple[dict[str, Any], str | None]] = {
    "fine": (manifest(**TPU), None),
    "nothing is saved": (manifest(accelerator="v5e-16"), "spec.checkpointDir: is missing"),
    "a relative path": (
        manifest(**TPU, trainer=data(path="text/*.parquet")),
        'spec.trainer.data.path: "text/*.parquet" is relative',
    ),
    "a relative tokenizer": (
        manifest(**TPU, trainer=data(path="gs://b/x", tokenizer="tok.json")),
        'spec.trainer.data.tokenizer: "tok.json" is relative',
    ),
    "a script that is no program": (
        container_manifest(**TPU, command=["train.py", "--lr", "1"]),
        'spec.command: "train.py" starts only where it is a program on PATH; for a script write [python3',
    ),
    "a script of the image": (container_manifest(**TPU, command=["/app/train.py"]), None),
    "bytes are no path": (manifest(**TPU, trainer=data(path="gs://b/x", tokenizer="bytes")), None),
    "a relative part of a mixture": (
        manifest(**TPU, trainer=data(mixture=[{"path": "gs://b/x"}, {"path": "y/*"}])),
        'spec.trainer.data.mixture[1].path: "y/*" is relative',
    ),
    "relative weights": (
        manifest(**TPU, trainer={**data(path="gs://b/x", tokenizer="bytes"), "model": {"from": "llama"}}),
        'spec.trainer.model.from: "llama" is relative',
    ),
    "a path on no volume": (
        manifest(**TPU, trainer=data(path="/data/x")),
        'spec.trainer.data.path: "/data/x" is on no volume',
    ),
    "a path on a volume": (manifest(**TPU, trainer=data(path="/data/x"), volumes=[VOLUME]), None),
    "a path in an image of one's own": (manifest(**TPU, trainer=data(path="/data/x"), image="a/b:1"), None),
    "relative on CPU devices": (manifest(trainer=data(path="text/*")), None),
    "no resources on CPU devices": (manifest(), None),
    "more grace than spot has": (
        container_manifest(**TPU, capacity={"spot": True}, gracePeriodSeconds=60),
        "spec.gracePeriodSeconds: 60, and pods on spot machines get 15",
    ),
    "MaxText with tfds": (maxtext("dataset_type=tfds"), "spec.command: dataset_type=tfds keeps no position"),
    "MaxText by default": (maxtext(), "spec.command: dataset_type is tfds by default, which keeps no position"),
    "MaxText by its environment": (maxtext(env=[{"name": "M_DATASET_TYPE", "value": "grain"}]), None),
    "MaxText with grain": (maxtext("dataset_type=grain"), None),
    "MaxText from a file of one's own": (maxtext("configs/mine.yml"), None),
    "MaxText by a script": (
        container_manifest(**TPU, framework="maxtext", command=["bash", "-c", "maxtext-train dataset_type=hf"]),
        None,
    ),
    "MaxText by a script with arguments from elsewhere": (
        container_manifest(**TPU, framework="maxtext", command=["bash", "-c", "exec maxtext-train $ARGUMENTS"]),
        None,
    ),
    "a misspelt key of MaxText": (
        maxtext("dataset_type=grain", "per_device_batchsize=4"),
        'spec.command: "per_device_batchsize" is no key of MaxText, which refuses it; did you mean per_device_',
    ),
    "a misspelt variable of MaxText": (
        maxtext(env=[{"name": "M_DATASET_TYPE", "value": "grain"}, {"name": "M_STEP", "value": "9"}]),
        "spec.env: M_STEP sets no key of MaxText; did you mean M_STEPS?",
    ),
    "a key of MaxText with dashes": (
        maxtext("dataset_type=grain", "--model_name=llama2-7b"),
        'spec.command: "--model_name=llama2-7b": MaxText reads KEY=VALUE; leave out the dashes',
    ),
    "an unknown model of MaxText": (
        maxtext("dataset_type=grain", "model_name=llama2-7bb"),
        "spec.command: model_name=llama2-7bb is no model of MaxText; did you mean llama2-7b?",
    ),
    "axes of MaxText that are not the slice": (
        maxtext("dataset_type=grain", "ici_fsdp_parallelism=16", "ici_tensor_parallelism=4"),
        "spec.command: ici_fsdp_parallelism=16 ici_tensor_parallelism=4: together 64, and there are 16 devices of",
    ),
    "axes of MaxText with a rest": (maxtext("dataset_type=grain", "ici_tensor_parallelism=4"), None),
    "axes of MaxText that are not the slices": (
        maxtext("dataset_type=grain", "dcn_data_parallelism=4", slices=16),
        "spec.command: dcn_data_parallelism=4: together 4, and there are 16 slices",
    ),
    "files of MaxText on no volume": (
        maxtext("dataset_type=grain", "grain_train_files=/dat/c4/*"),
        'spec.command: grain_train_files: "/dat/c4/*" is on no volume of the job',
    ),
    "another directory of MaxText": (
        maxtext("dataset_type=grain", "base_output_directory=gs://other/place"),
        "spec.command: base_output_directory=gs://other/place, so nothing is written to spec.checkpointDir",
    ),
    "a period of MaxText longer than the run": (
        maxtext("dataset_type=grain", "steps=5000"),
        "spec.command: checkpoint_period=10000 saves nothing before the end of 5,000 steps",
    ),
    "MaxText without checkpoints": (
        maxtext("dataset_type=grain", "enable_checkpointing=false"),
        "spec.command: enable_checkpointing is false, so a restart begins at step 0",
    ),
    "MaxText without a tokenizer": (
        container_manifest(**TPU, framework="maxtext", command=["maxtext-train", "dataset_type=grain"]),
        "spec.command: without tokenizer_path, MaxText takes that of model_name",
    ),
    "MaxText on spot": (
        maxtext("dataset_type=grain", "checkpoint_period=50", capacity={"spot": True}),
        "spec.command: on spot capacity, MaxText saves nothing when it is asked to stop",
    ),
    "MaxText that saves on spot": (
        maxtext("dataset_type=synthetic", "enable_autocheckpoint=True", capacity={"spot": True}),
        None,
    ),
    "another controller": (
        container_manifest(queue="q", managedBy="kueue.x-k8s.io/multikueue"),
        'spec.managedBy: "kueue.x-k8s.io/multikueue" runs this job; the operator',
    ),
    "the operator by its name": (container_manifest(managedBy="tpujob.dev/operator"), None),
    "the default grace on spot": (container_manifest(**TPU, capacity={"spot": True}), None),
}


@pytest.mark.parametrize("case", CASES)
def test_doubtful_jobs_are_warned_about(case: str) -> None:
    job, words = CASES[case]
    warnings = job_warnings(load_job(job))
    assert len(warnings) == (words is not None)
    assert "".join(warnings).startswith(words or "")


def test_pods_of_a_cpu_job_have_no_folder_of_the_laptop() -> None:
    job = load_job(manifest(trainer=data(path="text/*"), resources={"requests": {"cpu": 1}}))
    assert job_warnings(job) == ()
    (warning,) = job_warnings(job, is_for_cluster=True)
    assert warning.startswith('spec.trainer.data.path: "text/*" is relative')


def test_pods_that_reserve_nothing_are_told_of_before_the_job_is_made() -> None:
    job = load_job(manifest())
    (warning,) = submission_warnings(job)
    assert warning.startswith("spec.resources: is missing, so the pods reserve no processors")
    assert job_warnings(job, is_for_cluster=True) == (), "its status has nothing that anybody could still change"
    assert submission_warnings(load_job(manifest(**TPU))) == ()


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_examples_for_tpus_need_no_warning(file: Path) -> None:
    job = load_job(YAML(typ="safe", pure=True).load(file.read_text()))
    warnings = job_warnings(job) if job.accelerator.is_tpu else ()
    # Its first lines say so.
    assert len(warnings) == (file.name == "v5e-8.yaml"), warnings
