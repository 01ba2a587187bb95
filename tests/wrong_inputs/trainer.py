# ruff: noqa: E501 - a table
"""Wrong jobs: the trainer block."""

from typing import Any

from tests.operator.manifests import TRAINER, manifest
from tests.wrong_inputs.row import ARITHMETIC, Job, Wrong
from tpujob_resource.topology.parse import COUNT_LABEL

EXTRACTION = {
    "task": "extract",
    "model": {"preset": "tiny"},
    "data": {"path": "gs://bucket/data", "tokenizer": "bytes"},
    "extract": {"layers": ["1"]},
}

SMALL: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "data/*.parquet"}, "steps": 10}


def _spec(**fields: Any) -> Job:
    return manifest("job", **{"accelerator": "cpu:2x1", "trainer": SMALL, **fields})


def _trainer(**fields: Any) -> Job:
    return _spec(trainer={key: value for key, value in {**SMALL, **fields}.items() if value is not None})


ROWS: dict[str, Wrong] = {
    "neither": Wrong(
        manifest(trainer=None),
        "spec.trainer: is missing; describe a training run here, or give image and command",
    ),
    "an empty trainer": Wrong(
        manifest(trainer={}),
        "spec.trainer: {} is empty; at least 1 entry",
        api="spec.trainer.model: Required value, spec.trainer.data: Required value",
    ),
    "a model of one's own by its file": Wrong(
        _trainer(model={"custom": "my_model.py"}),
        'spec.trainer.model.custom: "my_model.py" is not module:name; write it as in my_package.model:Decoder',
    ),
    "an optimizer of one's own without a module": Wrong(
        _trainer(optimizer={"custom": "adam"}),
        'spec.trainer.optimizer.custom: "adam" is not module:name; write it as in my_package.model:Decoder',
    ),
    "a loss of one's own in words": Wrong(
        _trainer(loss="my loss"),
        'spec.trainer.loss: "my loss" is not module:name; write it as in my_package.model:Decoder',
    ),
    "weights of one's own without a model of one's own": Wrong(
        _trainer(model={"preset": "tiny", "weights": "gs://bucket/run/export"}),
        "spec.trainer.model.weights: are those of custom, which is missing; write from for a Hugging Face model",
    ),
    "a callback without a name": Wrong(
        _trainer(callbacks=[{"everySteps": 5}]),
        "spec.trainer.callbacks[0].name: is missing",
        api="spec.trainer.callbacks[0].name: Required value",
    ),
    "the best by what nothing measures": Wrong(
        _trainer(evaluation={"everySteps": 5}, checkpoint={"keepBest": 1, "bestMetric": "accuracy"}),
        'spec.trainer.checkpoint.bestMetric: "accuracy" is not evaluated; write evaluation_loss, or name its function '
        "in evaluation.metrics",
    ),
    "a function for rows without columns": Wrong(
        _trainer(data={"path": "data/*.parquet", "custom": "my_rows:text"}),
        "spec.trainer.data.columns: required with custom, and missing; custom gets the columns that are named",
    ),
    "ids of a function and a part of them that is learned": Wrong(
        _trainer(
            data={"path": "data/*.parquet", "custom": "my_rows:ids", "columns": ["a"], "returns": "tokens"}
            | {"lossOn": "assistant"}
        ),
        "spec.trainer.data.lossOn: goes with texts, and custom returns tokens; leave it out",
    ),
    "tools without conversations": Wrong(
        _trainer(data={"path": "data/*.parquet", "toolsColumn": "tools"}),
        "spec.trainer.data.toolsColumn: goes with messagesColumn, which is missing; name the conversations there",
    ),
    "a day of a template for plain text": Wrong(
        _trainer(data={"path": "data/*.parquet", "chatTemplateDate": "2026-01-31"}),
        "spec.trainer.data.chatTemplateDate: goes with conversations, and there are none; leave it out",
    ),
    "arguments of a template for plain text": Wrong(
        _trainer(data={"path": "data/*.parquet", "chatTemplateArguments": {"enable_thinking": False}}),
        "spec.trainer.data.chatTemplateArguments: goes with conversations, and there are none; leave it out",
    ),
    "a system message that no template writes": Wrong(
        _trainer(sample={"prompt": "Hi", "chat": False, "system": "Be brief."}),
        "spec.trainer.sample.system: goes with chat, which is false; leave one of them out",
    ),
    "columns without a function": Wrong(
        _trainer(data={"path": "data/*.parquet", "columns": ["a"]}),
        "spec.trainer.data.custom: required with columns, and missing; custom gets the columns that are named",
    ),
    "no batch ahead": Wrong(
        _trainer(data={"path": "data/*.parquet", "prefetchBatches": 0}),
        "spec.trainer.data.prefetchBatches: 0 is too small; at least 1",
        api="spec.trainer.data.prefetchBatches: Invalid value: 0: spec.trainer.data.prefetchBatches in body should be greater than or equal to 1",
    ),
    "a trainer without data": Wrong(
        manifest(trainer={"model": {"preset": "tiny"}}),
        "spec.trainer.data: is missing",
        "spec.trainer.steps: is missing; give steps or tokens, the length of the run",
        api="spec.trainer.data: Required value",
    ),
    "a trainer with a wrong type": Wrong(
        manifest(trainer={**TRAINER, "steps": "many"}),
        'spec.trainer.steps: "many" is not a whole number; write it in digits',
        api='spec.trainer.steps: Invalid value: "string": spec.trainer.steps in body must be of type number: "string"',
    ),
    "path and dataset": Wrong(
        manifest(trainer={**TRAINER, "data": {"path": "gs://b/x", "dataset": "a/b"}}),
        "spec.trainer.data: path, dataset and mixture exclude each other; keep one source, or list them in mixture",
    ),
    "heads that do not divide": Wrong(
        manifest(trainer={**TRAINER, "model": {"preset": "tiny", "heads": 4, "kvHeads": 3}}),
        "spec.trainer.model.kvHeads: 3 does not divide heads; change one of them",
        api="spec.trainer.model.kvHeads: Invalid value: does not divide heads; change one of them",
    ),
    "a trainer that is a string": Wrong(
        manifest(trainer="x"),
        'spec.trainer: "x" is not a mapping',
        api='spec.trainer: Invalid value: "string": spec.trainer in body must be of type object: "string"',
    ),
    "a loss of one's own with zLoss": Wrong(
        manifest(trainer={**TRAINER, "loss": "mine:loss", "zLoss": 1e-4}),
        "spec.trainer.zLoss: excludes loss, which can have such a term itself; leave one of them out",
    ),
    "an extraction on several hosts": Wrong(
        manifest(accelerator="v5e-16", checkpointDir="gs://bucket/a", trainer=EXTRACTION),
        "spec.trainer.task: is for independent workers of one host each; set spec.workers, and an accelerator of one host",
    ),
    "a sum with adapters that there are not": Wrong(
        manifest(trainer={**TRAINER, "export": {"merged": True}}),
        "spec.trainer.export.merged: adds adapters to the weights, and the job has none; set lora, or leave it out",
    ),
    "an average that is not kept": Wrong(
        manifest(trainer={**TRAINER, "evaluation": {"everySteps": 5, "average": True}}),
        "spec.trainer.evaluation.average: requires optimizer.emaDecay, which keeps the average; set it, 0.999 say",
    ),
    "copies on a volume of the pod": Wrong(
        manifest(
            accelerator="v5e-16",
            volumes=[{"name": "ram", "mountPath": "/copies", "emptyDir": {"medium": "Memory"}}],
            trainer={**TRAINER, "checkpoint": {"local": {"dir": "/copies/a", "everySteps": 10}}},
        ),
        'spec.trainer.checkpoint.local.dir: "/copies/a" is on a volume that does not outlive the pod; take a persistentVolumeClaim or gcs volume',
    ),
    "steps and tokens": Wrong(
        manifest(trainer={**TRAINER, "tokens": 100}),
        "spec.trainer.tokens: excludes steps, as each gives the length of the run; keep one of them",
    ),
    "no length of the run": Wrong(
        manifest(trainer={key: value for key, value in TRAINER.items() if key != "steps"}),
        "spec.trainer.steps: is missing; give steps or tokens, the length of the run",
    ),
    "warm-up to the end": Wrong(
        manifest(trainer={**TRAINER, "optimizer": {"warmupSteps": 10}}),
        "spec.trainer.optimizer.warmupSteps: 10 leaves nothing of the run's steps; it must be less, a tenth of them for instance",
        api="spec.trainer.optimizer.warmupSteps",
    ),
    "rows that do not divide": Wrong(
        manifest(trainer={**TRAINER, "batchSize": 20}),
        "spec.trainer.batchSize: 20 rows do not divide over 8 devices; 16, 24 and 32 do",
        later=ARITHMETIC,
    ),
    "a huge trainer block": Wrong(
        manifest(trainer={**TRAINER, "extra": "x" * 70000}),
        "spec.trainer.extra: there is no such field; did you mean extract?",
        "spec.trainer: the spec is 70112 bytes of JSON, 70103 of them here; at most 65536, as every pod repeats it: put data in the image, a ConfigMap or the bucket",
        api='unknown field "spec.trainer.extra"',
    ),
    "a mistake in the trainer block": Wrong(
        manifest(trainer={**TRAINER, "sequenceLenght": 8}),
        "spec.trainer.sequenceLenght: there is no such field; did you mean sequenceLength?",
        api='unknown field "spec.trainer.sequenceLenght"',
    ),
    "an extraction on halves of a machine": Wrong(
        manifest(
            accelerator="v6e-8", nodeSelector={COUNT_LABEL: "4"}, checkpointDir="gs://bucket/a", trainer=EXTRACTION
        ),
        "spec.trainer.task: is for independent workers of one host each; set spec.workers, and an accelerator of one host",
    ),
    "an extraction on two slices": Wrong(
        manifest(accelerator="v6e-8", slices=2, checkpointDir="gs://bucket/a", trainer=EXTRACTION),
        "spec.trainer.task: is for independent workers of one host each; set spec.workers, and an accelerator of one host",
    ),
    "copies on no volume": Wrong(
        manifest(
            accelerator="v5e-16", trainer={**TRAINER, "checkpoint": {"local": {"dir": "/copies", "everySteps": 10}}}
        ),
        'spec.trainer.checkpoint.local.dir: "/copies" is on no volume, and would be lost with the pod; take a persistentVolumeClaim or gcs volume mounted there (spec.volumes)',
    ),
    "copies on a volume that is read": Wrong(
        manifest(
            accelerator="v5e-16",
            volumes=[{"name": "a", "mountPath": "/copies", "readOnly": True, "persistentVolumeClaim": "c"}],
            trainer={**TRAINER, "checkpoint": {"local": {"dir": "/copies", "everySteps": 10}}},
        ),
        'spec.trainer.checkpoint.local.dir: "/copies" is on a volume that is readOnly; drop readOnly',
    ),
    "copies at a relative path": Wrong(
        manifest(trainer={**TRAINER, "checkpoint": {"local": {"dir": "copies", "everySteps": 10}}}),
        'spec.trainer.checkpoint.local.dir: "copies" is not an absolute path; write one that begins with /, on a volume that outlives the pods',
    ),
    "a misspelt field of a block": Wrong(
        manifest(trainer={**TRAINER, "checkpoint": {"prompt": 5}}),
        "spec.trainer.checkpoint.prompt: there is no such field",
        api='unknown field "spec.trainer.checkpoint.prompt"',
    ),
    "epochs beside data": Wrong(
        _trainer(epochs=3),
        "spec.trainer.epochs: there is no such field; did you mean data.epochs?",
        api='unknown field "spec.trainer.epochs"',
    ),
    "a short name": Wrong(
        _trainer(optimizer={"lr": 0.001}),
        "spec.trainer.optimizer.lr: there is no such field; did you mean learningRate?",
        api='unknown field "spec.trainer.optimizer.lr"',
    ),
    "a short name beside its block": Wrong(
        _trainer(lr=0.001),
        "spec.trainer.lr: there is no such field; did you mean optimizer.learningRate?",
        api='unknown field "spec.trainer.lr"',
    ),
    "a hub name as the preset": Wrong(
        _trainer(model={"preset": "meta-llama/Llama-3.1-8B"}),
        'spec.trainer.model.preset: "meta-llama/Llama-3.1-8B" is not allowed; did you mean "llama3.1-8b"? one of ',
        api="spec.trainer.model.preset",
    ),
    "a block of a list": Wrong(
        _spec(trainer=[SMALL]),
        'spec.trainer: [{"model": {"preset": "tiny"}, "data": {"path": "data/*.par… is not a mapping',
        api='unknown field "spec.trainer[0].data"',
    ),
    "no model": Wrong(
        _trainer(model=None),
        "spec.trainer.model: is missing",
        api="spec.trainer.model: Required value",
    ),
    "no data": Wrong(
        _trainer(data=None),
        "spec.trainer.data: is missing",
        api="spec.trainer.data: Required value",
    ),
    "a model as text": Wrong(
        _trainer(model="tiny"),
        'spec.trainer.model: "tiny" is not a mapping; write {preset: tiny}',
        api='spec.trainer.model: Invalid value: "string": spec.trainer.model in body must be of type object: "string"',
    ),
    "a model of the hub as text": Wrong(
        _trainer(model="meta-llama/Llama-3-8B"),
        'spec.trainer.model: "meta-llama/Llama-3-8B" is not a mapping; write {from: hf://meta-llama/Llama-3-8B}',
        api='spec.trainer.model: Invalid value: "string": spec.trainer.model in body must be of type object: "string"',
    ),
    "the address of a model as text": Wrong(
        _trainer(model="gs://bucket/weights"),
        'spec.trainer.model: "gs://bucket/weights" is not a mapping; write {from: gs://bucket/weights}',
        api='spec.trainer.model: Invalid value: "string": spec.trainer.model in body must be of type object: "string"',
    ),
    "data as text": Wrong(
        _trainer(data="data/*.parquet"),
        'spec.trainer.data: "data/*.parquet" is not a mapping; write {path: data/*.parquet}',
        api='spec.trainer.data: Invalid value: "string": spec.trainer.data in body must be of type object: "string"',
    ),
    "an optimizer as text": Wrong(
        _trainer(optimizer="adamw"),
        'spec.trainer.optimizer: "adamw" is not a mapping; write {name: adamw}',
        api='spec.trainer.optimizer: Invalid value: "string": spec.trainer.optimizer in body must be of type object: "string"',
    ),
    "a sample as text": Wrong(
        _trainer(sample="def "),
        'spec.trainer.sample: "def " is not a mapping; write {prompt: "def "}',
        "spec.trainer.sample.prompt: required, and missing; or prompts",
        api='spec.trainer.sample: Invalid value: "string": spec.trainer.sample in body must be of type object: "string"',
    ),
    "checkpoints switched on": Wrong(
        _trainer(checkpoint=True),
        "spec.trainer.checkpoint: true is not a mapping; write {} for its defaults",
        api='spec.trainer.checkpoint: Invalid value: "boolean": spec.trainer.checkpoint in body must be of type object: "boolean"',
    ),
    "checkpoints switched off": Wrong(
        _trainer(checkpoint=False),
        "spec.trainer.checkpoint: false is not a mapping; leave it out",
        api='spec.trainer.checkpoint: Invalid value: "boolean": spec.trainer.checkpoint in body must be of type object: "boolean"',
    ),
    "a list of trackers": Wrong(
        _trainer(trackers=["wandb"]),
        'spec.trainer.trackers: ["wandb"] is not a mapping; write {wandb: {}}',
        api='spec.trainer.trackers: Invalid value: "array": spec.trainer.trackers in body must be of type object: "array"',
    ),
    "a project in the place of a tracker": Wrong(
        _trainer(trackers={"wandb": "my-project"}),
        'spec.trainer.trackers.wandb: "my-project" is not a mapping; write {project: my-project}',
        api='spec.trainer.trackers.wandb: Invalid value: "string": spec.trainer.trackers.wandb in body must be of type object: "string"',
    ),
    "megabytes in words": Wrong(
        _trainer(data={"path": "/data/*.parquet", "tokenizer": "bytes", "unitBytes": "64MB"}),
        'spec.trainer.data.unitBytes: "64MB" is not a whole number; write 64e6',
        api='spec.trainer.data.unitBytes: Invalid value: "string": spec.trainer.data.unitBytes in body must be of type integer: "string"',
    ),
    "a rate in percent": Wrong(
        _trainer(optimizer={"learningRate": "1%"}),
        'spec.trainer.optimizer.learningRate: "1%" is not a number; write it in digits',
        api='spec.trainer.optimizer.learningRate: Invalid value: "string": spec.trainer.optimizer.learningRate in body must be of type number: "string"',
    ),
    "a rate as a word": Wrong(
        _trainer(optimizer={"learningRate": "auto"}),
        'spec.trainer.optimizer.learningRate: "auto" is not a number; write it in digits',
        api='spec.trainer.optimizer.learningRate: Invalid value: "string": spec.trainer.optimizer.learningRate in body must be of type number: "string"',
    ),
    "warm-up as a fraction": Wrong(
        _trainer(optimizer={"warmupSteps": 0.1}),
        "spec.trainer.optimizer.warmupSteps: 0.1 is not a whole number",
        api="spec.trainer.optimizer.warmupSteps: Invalid value: 0.1",
    ),
    "a mesh as a number": Wrong(
        _trainer(mesh=4),
        "spec.trainer.mesh: 4 is not a mapping",
        api='spec.trainer.mesh: Invalid value: "integer": spec.trainer.mesh in body must be of type object: "integer"',
    ),
    "a module in the place of a list": Wrong(
        _trainer(lora={"targets": "query"}),
        'spec.trainer.lora.targets: "query" is not a list',
        "spec.trainer.lora: requires model.from",
        api='spec.trainer.lora.targets: Invalid value: "string": spec.trainer.lora.targets in body must be of type array: "string"',
    ),
    "a type that TPUs do not have": Wrong(
        _trainer(model={"preset": "tiny", "computeDtype": "fp16"}),
        'spec.trainer.model.computeDtype: "fp16" is not allowed; did you mean "bfloat16"?',
        api='spec.trainer.model.computeDtype: Unsupported value: "fp16"',
    ),
    "an optimizer of another name": Wrong(
        _trainer(optimizer={"name": "adam"}),
        'spec.trainer.optimizer.name: "adam" is not allowed; did you mean "adamw"?',
        api='spec.trainer.optimizer.name: Unsupported value: "adam"',
    ),
    "a schedule with a slip": Wrong(
        _trainer(optimizer={"schedule": "cosinee"}),
        'spec.trainer.optimizer.schedule: "cosinee" is not allowed; did you mean "cosine"?',
        api='spec.trainer.optimizer.schedule: Unsupported value: "cosinee"',
    ),
    "an axis by its short name": Wrong(
        _trainer(mesh={"tp": 2}),
        "spec.trainer.mesh.tp: there is no such field; did you mean tensor?",
        api='unknown field "spec.trainer.mesh.tp"',
    ),
    "every without a unit": Wrong(
        _trainer(checkpoint={"every": 100}),
        "spec.trainer.checkpoint.every: there is no such field; did you mean everySteps?",
        api='unknown field "spec.trainer.checkpoint.every"',
    ),
    "passes beside the data": Wrong(
        _trainer(epochs=2),
        "spec.trainer.epochs: there is no such field; did you mean data.epochs?",
        api='unknown field "spec.trainer.epochs"',
    ),
    "the rate of a web page": Wrong(
        _trainer(optimizer={"lr": 0.001}),
        "spec.trainer.optimizer.lr: there is no such field; did you mean learningRate?",
        api='unknown field "spec.trainer.optimizer.lr"',
    ),
    "an unknown preset": Wrong(
        _trainer(model={"preset": "gpt-9"}),
        'spec.trainer.model.preset: "gpt-9" is not allowed; one of ',
        api="spec.trainer.model.preset",
    ),
    "an unknown key": Wrong(
        _trainer(learningRate=1),
        "spec.trainer.learningRate: there is no such field; did you mean optimizer.learningRate?",
        api='unknown field "spec.trainer.learningRate"',
    ),
    "billions by letter": Wrong(
        _trainer(steps=None, tokens="20B"),
        'spec.trainer.tokens: "20B" is not a whole number; write 20e9',
        api='spec.trainer.tokens: Invalid value: "string": spec.trainer.tokens in body must be of type number: "string"',
    ),
    "billions in words": Wrong(
        _trainer(steps=None, tokens="20 billion"),
        'spec.trainer.tokens: "20 billion" is not a whole number; write 20e9',
        api='spec.trainer.tokens: Invalid value: "string": spec.trainer.tokens in body must be of type number: "string"',
    ),
    "tokens in quotes": Wrong(
        _trainer(steps=None, tokens="20e9"),
        'spec.trainer.tokens: "20e9" is not a whole number; write 20e9, without quotes',
        api='spec.trainer.tokens: Invalid value: "string": spec.trainer.tokens in body must be of type number: "string"',
    ),
    "no steps": Wrong(
        _trainer(steps=0),
        "spec.trainer.steps: 0 is too small; at least 1",
        "spec.trainer.steps: is missing; give steps or tokens, the length of the run",
    ),
    "negative steps": Wrong(
        _trainer(steps=-5),
        "spec.trainer.steps: -5 is too small; at least 1",
        api="spec.trainer.steps: Invalid value: -5: spec.trainer.steps in body should be greater than or equal to 1",
    ),
    "half a step": Wrong(
        _trainer(steps=1.5),
        "spec.trainer.steps: 1.5 is not a whole number",
        api="spec.trainer.steps: Invalid value: 1.5: spec.trainer.steps in body should be a multiple of 1",
    ),
    "rows of one token": Wrong(
        _trainer(sequenceLength=1),
        "spec.trainer.sequenceLength: 1 is too small; at least 2",
        api="spec.trainer.sequenceLength",
    ),
    "no rows": Wrong(
        _trainer(batchSize=0),
        "spec.trainer.batchSize: 0 is too small; at least 1",
        api="spec.trainer.batchSize: Invalid value: 0: spec.trainer.batchSize in body should be greater than or equal to 1",
    ),
    "a rate too large": Wrong(
        _trainer(optimizer={"learningRate": 100}),
        "spec.trainer.optimizer.learningRate: 100 is too large; at most 10",
        api="spec.trainer.optimizer.learningRate",
    ),
    "a momentum of one": Wrong(
        _trainer(optimizer={"beta1": 1}),
        "spec.trainer.optimizer.beta1: 1 is too large; at most 0.99999",
        api="spec.trainer.optimizer.beta1",
    ),
    "a path as a number": Wrong(
        _trainer(data={"path": 7}),
        "spec.trainer.data.path: 7 is not a string",
        api="spec.trainer.data.path",
    ),
    "an unknown format": Wrong(
        _trainer(data={"path": "x", "format": "xlsx"}),
        'spec.trainer.data.format: "xlsx" is not allowed; one of "parquet", "arrow", "arrayrecord", "tfrecord", "webdataset", "jsonl", "csv", "text"',
        api="spec.trainer.data.format",
    ),
    "a typing error in data": Wrong(
        _trainer(data={"pth": "x"}),
        "spec.trainer.data.pth: there is no such field; did you mean path?",
        "spec.trainer.data.path: is missing",
        api='unknown field "spec.trainer.data.pth"',
    ),
    "evaluation without a rhythm": Wrong(
        _trainer(evaluation={}),
        "spec.trainer.evaluation.everySteps: is missing",
        api="spec.trainer.evaluation.everySteps: Required value",
    ),
    "a sample without a prompt": Wrong(
        _trainer(sample={"tokens": 5}),
        "spec.trainer.sample.prompt: is missing",
        "spec.trainer.sample.prompt: required, and missing; or prompts",
    ),
    "no checkpoint kept": Wrong(
        _trainer(checkpoint={"keep": 0}),
        "spec.trainer.checkpoint.keep: 0 is too small; at least 1",
        api="spec.trainer.checkpoint.keep",
    ),
    "a tracker without a project": Wrong(
        _trainer(trackers={"wandb": {}}),
        "spec.trainer.trackers.wandb.project: is missing",
        api="spec.trainer.trackers.wandb.project: Required value",
    ),
    "an unknown remat": Wrong(
        _trainer(model={"preset": "tiny", "remat": "some"}),
        'spec.trainer.model.remat: "some" is not allowed; one of "none", "dots", "full"',
        api='spec.trainer.model.remat: Unsupported value: "some": supported values: "none", "dots", "full"',
    ),
    "rows that do not divide again": Wrong(
        _spec(accelerator="cpu:3x1"),
        "spec.trainer.batchSize: 16 rows (the default of preset tiny) do not divide over 3 devices; 15, 18 and 21 do",
        later=ARITHMETIC,
    ),
    "a warm-up too long": Wrong(
        _trainer(optimizer={"warmupSteps": 100}),
        "spec.trainer.optimizer.warmupSteps: 100 leaves nothing of the run's steps; it must be less, a tenth of them for instance",
        api="spec.trainer.optimizer.warmupSteps",
    ),
    "a block too large": Wrong(
        _trainer(data={"path": "x" * 70_000}),
        "spec.trainer: the spec is 70073 bytes of JSON, 70064 of them here; at most 65536, as every pod repeats it: put data in the image, a ConfigMap or the bucket",
        api="spec.trainer.data.path: Too long: may not be more than 8192 bytes",
    ),
}
