"""A hundred and twenty wrong files: each refused by name, with its exit code, at once, and without a traceback."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tpujob.main import app

HEAD = "apiVersion: tpujob.dev/v1alpha1\nkind: TpuTrainingJob\nmetadata: {name: job}\n"
TRAINER: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "data/*.parquet"}, "steps": 10}
MOST_SECONDS = 2.0
"""Of the processor: how busy the machine is does not count."""


def spec(**fields: Any) -> str:
    """A job of which these fields differ from a right one; None leaves one out."""
    whole = {"accelerator": "cpu:2x1", "trainer": TRAINER} | fields
    return HEAD + "spec: " + json.dumps({key: value for key, value in whole.items() if value is not None})


def trainer(**fields: Any) -> str:
    """A job of whose trainer block these fields differ."""
    whole = TRAINER | fields
    return spec(trainer={key: value for key, value in whole.items() if value is not None})


def image(**fields: Any) -> str:
    """A job with an image, of which these fields differ."""
    return spec(**{"trainer": None, "image": "a/b:1", "command": ["train"]} | fields)


def named(metadata: str) -> str:
    return spec().replace("metadata: {name: job}", f"metadata: {metadata}")


def env(*variables: dict[str, Any]) -> str:
    return image(env=list(variables))


SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
FILES: dict[str, tuple[str, str]] = {
    # What belongs elsewhere, or is written otherwise.
    "a field beside spec": (f"{HEAD}accelerator: v5e-16\n", "did you mean spec.accelerator?"),
    "epochs beside data": (trainer(epochs=3), "spec.trainer.epochs: there is no such field; did you mean data.epochs?"),
    "a short name": (trainer(optimizer={"lr": 0.001}), "did you mean learningRate?"),
    "a short name beside its block": (trainer(lr=0.001), "did you mean optimizer.learningRate?"),
    "a hub name as the preset": (trainer(model={"preset": "meta-llama/Llama-3.1-8B"}), 'did you mean "llama3.1-8b"?'),
    "variables as a mapping": (image(env={"LR": "0.1"}), 'write [{name: NAME, value: "VALUE"}], an entry for each'),
    "an image with its scheme": (image(image="https://ghcr.io/me/train:1"), "NAME in lower case and without https://"),
    "a queue of a namespace": (spec(queue="team/queue"), "is not a name in Kubernetes; allowed: lower-case letters"),
    "a volume in capitals": (
        image(volumes=[{"name": "Data", "mountPath": "/data", "emptyDir": {}}]),
        "a name in a pod",
    ),
    "a relative mount": (
        image(volumes=[{"name": "data", "mountPath": "data", "emptyDir": {}}]),
        "not an absolute path",
    ),
    "a strange taint": (spec(tolerations=[{"key": "a b", "operator": "Exists"}]), "is not a label's key; write"),
    # What is no job at all.
    "an empty file": ("", "is empty"),
    "comments alone": ("# nothing\n", "is empty"),
    "two jobs": (f"{spec()}\n---\n{spec()}", "has 2 documents (TpuTrainingJob, TpuTrainingJob)"),
    "a namespace beside the job": (f"kind: Namespace\n---\n{spec()}", "has 2 documents (Namespace, TpuTrainingJob)"),
    "a list": ("- a\n- b\n", "not a mapping"),
    "a word": ("job\n", "not a mapping"),
    "wrong indentation": (f"{HEAD}spec:\n  accelerator: v5e-16\n   slices: 2\n", "indented more or less"),
    "a tab": (f"{HEAD}spec:\n\taccelerator: v5e-16\n", "indent with spaces"),
    "no space after a colon": (f"{HEAD}spec:\n  accelerator:v5e-16\n  slices: 2\n", "no space after a colon"),
    "an open bracket": (f"{HEAD}spec: {{accelerator: v5e-16\n", "not YAML"),
    "an open quote": (f'{HEAD}spec: {{accelerator: "v5e-16}}\n', "not YAML"),
    "a key twice": (f"{HEAD}spec:\n  slices: 1\n  slices: 2\n", "not YAML"),
    "an alias of itself": (named("{name: job, &a annotations: &b {c: *b}}"), "an alias (*name) stands inside"),
    "a date that is none": (named("{name: job, annotations: {since: 2024-13-45}}"), "put values that are text in quot"),
    "another kind": ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n", "kind: Job is not TpuTrainingJob"),
    "no kind": (spec().replace("kind: TpuTrainingJob\n", ""), "kind: is missing"),
    "another version": (spec().replace("v1alpha1", "v9"), "apiVersion"),
    "no spec": (HEAD, "spec: is missing"),
    "a spec of words": (f"{HEAD}spec: train\n", "spec: "),
    # Its name.
    "no metadata": (spec().replace("metadata: {name: job}\n", ""), "metadata: is missing"),
    "no name": (named("{}"), "metadata.name: is missing"),
    "an empty name": (named('{name: ""}'), "metadata.name"),
    "capitals": (named("{name: MyJob}"), "metadata.name: "),
    "an underscore": (named("{name: my_job}"), "metadata.name: "),
    "a dash at the end": (named("{name: job-}"), "metadata.name: "),
    "a digit first": (named("{name: 1job}"), "metadata.name: "),
    "a dot": (named("{name: my.job}"), "metadata.name: "),
    "a name too long": (named(f"{{name: {'a' * 50}}}"), "at most 49"),
    "a number": (named("{name: 7}"), "metadata.name: 7"),
    # Accelerators.
    "no accelerator": (spec(accelerator=None), "spec.accelerator: is missing"),
    "an empty one": (spec(accelerator=""), "spec.accelerator"),
    "a size of cores that is none": (spec(accelerator="v4-12"), "v4-16"),
    "an odd size": (spec(accelerator="v5e-3"), "spec.accelerator"),
    "a size too large": (spec(accelerator="v6e-512"), "spec.accelerator"),
    "a shape that is not sold": (spec(accelerator="v5e:3x3"), "spec.accelerator"),
    "three dimensions for two": (spec(accelerator="v5e:4x4x4"), "spec.accelerator"),
    "two dimensions for three": (spec(accelerator="v5p:4x4"), "spec.accelerator"),
    "hosts without devices": (spec(accelerator="cpu:2"), "spec.accelerator"),
    "no hosts": (spec(accelerator="cpu:0x4"), "spec.accelerator"),
    "no devices": (spec(accelerator="cpu:2x0"), "spec.accelerator"),
    "a GPU": (spec(accelerator="h100-8"), "spec.accelerator"),
    "an old generation": (spec(accelerator="v2-8"), "spec.accelerator"),
    "a space": (spec(accelerator="v5e 16"), "spec.accelerator"),
    "an accelerator as a number": (spec(accelerator=16), "spec.accelerator: 16 is not a string"),
    "an accelerator as a list": (spec(accelerator=["v5e-16"]), "spec.accelerator: "),
    # Slices and workers.
    "no slices": (spec(slices=0), "spec.slices: 0 is too small"),
    "negative slices": (spec(slices=-1), "spec.slices: -1 is too small"),
    "too many slices": (spec(slices=300), "spec.slices: 300 is too large"),
    "slices in quotes": (spec(slices="2"), "write 2, without quotes"),
    "half a slice": (spec(slices=1.5), "spec.slices: 1.5 is not a whole number"),
    "slices true": (spec(slices=True), "spec.slices"),
    "slices of one chip": (spec(accelerator="v5e-1", slices=2), "spec.slices"),
    "slices and workers": (image(slices=2, workers=2), "spec.workers: excludes slices"),
    "workers of several hosts": (image(accelerator="v5e-16", workers=2), "a worker is one host"),
    "no workers": (image(accelerator="cpu:1x1", workers=0), "spec.workers: 0 is too small"),
    "too many workers": (image(accelerator="cpu:1x1", workers=5000), "spec.workers: 5000 is too large"),
    # What is run.
    "nothing to run": (spec(trainer=None), "spec.trainer: is missing"),
    "trainer and image": (spec(image="a", command=["b"]), "excludes trainer"),
    "an image alone": (image(command=None), "spec.command: is missing"),
    "a command alone": (image(image=None), "spec.image: is missing"),
    "a command as text": (image(command="python train.py"), "spec.command: "),
    "an empty command": (image(command=[]), "spec.command: "),
    "arguments as text": (image(args="--steps 5"), "spec.args: "),
    "an image with a space": (image(image="a b"), "spec.image: "),
    "a framework beside the trainer": (spec(framework="maxtext"), "spec.framework: excludes trainer"),
    "an unknown framework": (image(framework="torch"), "spec.framework: "),
    # Environment.
    "a variable twice": (env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}), "A is there twice"),
    "a reserved variable": (env({"name": "TPUJOB_SLICE", "value": "1"}), "belongs to the operator"),
    "a token in the manifest": (env({"name": "HF_TOKEN", "value": "hf_x"}), "use valueFrom.secretKeyRef"),
    "value and source": (env({"name": "A", "value": "1", "valueFrom": SECRET}), "both value and valueFrom"),
    "a source of nothing": (env({"name": "A", "valueFrom": {}}), "give one of secretKeyRef"),
    "a number as value": (env({"name": "A", "value": 1}), "is not a string; put it in quotes"),
    "a name with a space": (env({"name": "A B", "value": "1"}), "spec.env[0].name"),
    "a mapping of variables": (image(env={"A": "1"}), "spec.env: "),
    "devices set by hand": (env({"name": "JAX_PLATFORMS", "value": "tpu"}), "is set by accelerator"),
    # Storage.
    "a relative directory": (spec(checkpointDir="checkpoints"), "spec.checkpointDir: "),
    "another cloud": (spec(checkpointDir="s3://bucket/x"), "spec.checkpointDir: "),
    "a bucket in capitals": (spec(checkpointDir="gs://My-Bucket/x"), "starts and ends with a letter or digit"),
    "no bucket": (spec(checkpointDir="gs:///x"), "spec.checkpointDir: "),
    "an empty directory": (spec(checkpointDir=""), "spec.checkpointDir"),
    "a directory as a number": (spec(checkpointDir=7), "spec.checkpointDir: 7 is not a string"),
    # Machines.
    "spot and flex-start": (spec(capacity={"spot": True, "flexStart": True}), "exclude each other"),
    "flex-start on v4": (spec(accelerator="v4-16", capacity={"flexStart": True}), "not offered with flex-start"),
    "a reservation without a name": (spec(capacity={"reservation": {}}), "spec.capacity.reservation.name: is missing"),
    "an unknown way to pay": (spec(capacity={"preemptible": True}), "spec.capacity.preemptible"),
    "a label of ours": (spec(nodeSelector={"cloud.google.com/gke-tpu-topology": "4x4"}), "is set by spec.accelerator"),
    "a taint with a value too many": (
        spec(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "goes with operator Equal",
    ),
    "the end of a machine tolerated": (
        spec(tolerations=[{"key": "cloud.google.com/impending-node-termination"}]),
        "never tolerate it",
    ),
    "an amount in words": (spec(resources={"limits": {"cpu": "8 cores"}}), "is not an amount"),
    "a negative amount": (spec(resources={"limits": {"memory": "-1Gi"}}), "is not an amount"),
    "an unknown resource": (spec(resources={"limits": {"gpu": 1}}), "spec.resources.limits.gpu"),
    "negative crashes": (spec(restarts={"crashes": -1}), "spec.restarts.crashes: -1 is too small"),
    "no time to save": (spec(gracePeriodSeconds=1), "spec.gracePeriodSeconds: 1 is too small"),
    "no time to start": (spec(startupSeconds=5), "spec.startupSeconds: 5 is too small"),
    "kept for less than nothing": (spec(ttlSecondsAfterFinished=-1), "spec.ttlSecondsAfterFinished"),
    "suspend in words": (spec(suspend="yes"), "is neither true nor false"),
    "a queue with a space": (spec(queue="Team A"), "spec.queue"),
    "a pull policy in small letters": (spec(imagePullPolicy="always"), "spec.imagePullPolicy: "),
    "a typing error": (spec(acelerator="v4-8"), "did you mean accelerator?"),
    "snake case": (spec(checkpoint_dir="gs://b/x"), "did you mean checkpointDir?"),
    # The trainer block.
    "an empty block": (spec(trainer={}), "spec.trainer"),
    "a block of a list": (spec(trainer=[TRAINER]), "spec.trainer: "),
    "no model": (trainer(model=None), "spec.trainer.model: is missing"),
    "no data": (trainer(data=None), "spec.trainer.data: is missing"),
    "a model as text": (trainer(model="tiny"), "spec.trainer.model: "),
    "data as text": (trainer(data="data/*.parquet"), "spec.trainer.data: "),
    "an unknown preset": (trainer(model={"preset": "gpt-9"}), "spec.trainer.model.preset: "),
    "an unknown key": (trainer(learningRate=1), "spec.trainer.learningRate: there is no such field"),
    "billions by letter": (trainer(steps=None, tokens="20B"), "write 20e9"),
    "billions in words": (trainer(steps=None, tokens="20 billion"), '"20 billion" is not a whole number; write 20e9'),
    "tokens in quotes": (trainer(steps=None, tokens="20e9"), "write 20e9, without quotes"),
    "no steps": (trainer(steps=0), "spec.trainer.steps: 0 is too small"),
    "negative steps": (trainer(steps=-5), "spec.trainer.steps: -5 is too small"),
    "half a step": (trainer(steps=1.5), "spec.trainer.steps: 1.5 is not a whole number"),
    "rows of one token": (trainer(sequenceLength=1), "spec.trainer.sequenceLength: 1 is too small"),
    "no rows": (trainer(batchSize=0), "spec.trainer.batchSize: 0 is too small"),
    "a rate too large": (trainer(optimizer={"learningRate": 100}), "spec.trainer.optimizer.learningRate"),
    "a momentum of one": (trainer(optimizer={"beta1": 1}), "spec.trainer.optimizer.beta1"),
    "a path as a number": (trainer(data={"path": 7}), "spec.trainer.data.path: 7"),
    "an unknown format": (trainer(data={"path": "x", "format": "csv"}), "spec.trainer.data.format: "),
    "a typing error in data": (trainer(data={"pth": "x"}), "did you mean path?"),
    "evaluation without a rhythm": (trainer(evaluation={}), "spec.trainer.evaluation.everySteps: is missing"),
    "a sample without a prompt": (trainer(sample={"tokens": 5}), "spec.trainer.sample.prompt: is missing"),
    "no checkpoint kept": (trainer(checkpoint={"keep": 0}), "spec.trainer.checkpoint.keep: 0 is too small"),
    "a tracker without a project": (trainer(trackers={"wandb": {}}), "wandb.project: is missing"),
    "an unknown remat": (trainer(model={"preset": "tiny", "remat": "some"}), "spec.trainer.model.remat: "),
    "steps and tokens": (trainer(tokens=1000), "spec.trainer.tokens: excludes steps"),
    "no length": (trainer(steps=None), "spec.trainer"),
    "rows that do not divide": (spec(accelerator="cpu:3x1"), "spec.trainer.batchSize"),
    "a path and a data set": (trainer(data={"path": "x", "dataset": "a/b"}), "spec.trainer.data"),
    "a warm-up too long": (trainer(optimizer={"warmupSteps": 100}), "spec.trainer.optimizer.warmupSteps"),
    "heads that do not divide": (trainer(model={"preset": "tiny", "kvHeads": 3}), "kvHeads"),
    "a block too large": (trainer(data={"path": "x" * 70_000}), "at most 65536"),
}


def test_there_are_a_hundred_and_twenty() -> None:
    assert len(FILES) >= 120


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_refused_by_name(case: str, tmp_path: Path) -> None:
    text, words = FILES[case]
    file = tmp_path / "job.yaml"
    file.write_text(text)
    begun = time.process_time()
    done = CliRunner().invoke(app, ["render", str(file)])
    assert time.process_time() - begun < MOST_SECONDS
    assert words in done.output
    assert done.exit_code == 78
    assert isinstance(done.exception, SystemExit), "an exception would be a traceback"
    assert all(len(line) < 500 for line in done.output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["render", "absent.yaml"], 77, "absent.yaml: No such file"),
        (["render", "."], 77, "Is a directory"),
        (["render", "binary"], 77, "is not UTF-8"),
        (["run", "large.yaml"], 78, "cpu:2x4"),
        (["run", "secret.yaml"], 78, "export it here first"),
        (["data", "from-folder", "absent", "out"], 77, "is not a folder"),
        (["data", "from-folder", ".", "."], 78, "is there already"),
        (["data", "from-folder", "empty", "out"], 77, "no text"),
        (["data", "from-folder", "empty", "binary/out"], 78, "OUT: 'binary/out' cannot be written (Not a directory)"),
        (["checkpoint", "ls", "empty"], 77, "is no checkpoint directory"),
        (["bundle"], 78, "--out"),
        (
            ["new", "large.yaml", "--name", "a", "--accelerator", "cpu:1x1", "--data", "x", "--preset", "tiny"],
            78,
            "there",
        ),
        (["runn", "job.yaml"], 2, "runn"),
        (["run"], 2, "JOB.YAML"),
        (["run", "large.yaml", "--max-processes", "0"], 2, "--max-processes"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_a_wrong_command_is_refused(
    arguments: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\xff\xfe\x00")
    Path("empty").mkdir()
    Path("large.yaml").write_text(image(accelerator="v5e-256"))
    Path("secret.yaml").write_text(env({"name": "NOT_SET_HERE", "valueFrom": SECRET}))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    assert words in done.output
    assert isinstance(done.exception, SystemExit)


def test_render_warns_on_stderr_alone(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(spec(accelerator="v5e-8", trainer=TRAINER | {"batchSize": 8}))
    done = CliRunner().invoke(app, ["render", str(file), "-o", "json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["kind"] == "JobSet"
    assert "warning: spec.checkpointDir: is missing" in done.stderr
    assert 'warning: spec.trainer.data.path: "data/*.parquet" is relative' in done.stderr
