"""Resources that are refused, with words of the sentence: the API server's, or the operator's where only it can tell.

docs/refusals.md is made of these (`make generate`).
"""

from typing import Any

from tests.operator.manifests import TRAINER, container_manifest, manifest

type Object = dict[str, Any]


def _env(name: str, **fields: Any) -> Object:
    return manifest(env=[{"name": name, **fields}])


def _elastic(**fields: Any) -> Object:
    return manifest(**{"slices": 4, "minSlices": 2, "checkpointDir": "gs://bucket/llama", **fields})


EXTRACTION = {
    "task": "extract",
    "model": {"preset": "tiny"},
    "data": {"path": "gs://bucket/data", "tokenizer": "bytes"},
    "extract": {"layers": ["1"]},
}


# name: (resource, words of the refusal)
REFUSED = {
    "no spec": ({k: v for k, v in manifest().items() if k != "spec"}, ["spec: Required value"]),
    "no accelerator": (manifest(accelerator=None), ["spec.accelerator: Required value"]),
    "unknown field": (manifest(acelerator="v4-8"), ['unknown field "spec.acelerator"']),
    "unknown field deep": (_env("A", valueFrom={"secretKeyRef": {"name": "s", "key": "k", "ns": "x"}}), ["unknown"]),
    "a namespace in a reference": (
        _env("A", valueFrom={"secretKeyRef": {"name": "s", "key": "k", "namespace": "kube-system"}}),
        ["unknown field"],
    ),
    "a raw pod spec": (manifest(template={"spec": {"hostNetwork": True}}), ['unknown field "spec.template"']),
    "host paths": (
        manifest(volumes=[{"name": "a", "mountPath": "/a", "hostPath": {"path": "/"}}]),
        ['unknown field "spec.volumes[0].hostPath"'],
    ),
    "a volume of no kind": (
        manifest(volumes=[{"name": "a", "mountPath": "/a"}]),
        ["give one of persistentVolumeClaim"],
    ),
    "a volume of two kinds": (
        manifest(volumes=[{"name": "a", "mountPath": "/a", "secret": "s", "configMap": "c"}]),
        ["give one of persistentVolumeClaim"],
    ),
    "a volume of the operator's name": (
        manifest(volumes=[{"name": "tmp", "mountPath": "/a", "secret": "s"}]),
        ["spec.volumes[0].name", "the operator has a volume of that name"],
    ),
    "a volume over the operator's": (
        manifest(volumes=[{"name": "a", "mountPath": "/dev/shm", "secret": "s"}]),
        ["spec.volumes[0].mountPath", "take another path"],
    ),
    "a volume twice": (
        manifest(volumes=[{"name": "a", "mountPath": path, "secret": "s"} for path in ("/a", "/b")]),
        ["spec.volumes[1]", "Duplicate value"],
    ),
    "a relative mount": (manifest(volumes=[{"name": "a", "mountPath": "a/b", "secret": "s"}]), ["mountPath"]),
    "a mount above": (manifest(volumes=[{"name": "a", "mountPath": "/a/../b", "secret": "s"}]), ["contains .."]),
    "checkpoints on no volume": (
        manifest(accelerator="v5e-16", checkpointDir="/mnt/ckpt"),
        ["spec.checkpointDir", "is on no volume, and would be lost with the pod"],
    ),
    "code on no volume": (
        manifest(accelerator="v5e-16", code={"archive": "/share/code.tar.gz", "sha256": "0" * 64}),
        ["spec.code.archive", "is on no volume of the job"],
    ),
    "code without a digest": (manifest(code={"archive": "gs://bucket/code.tar.gz"}), ["spec.code.sha256"]),
    "code of half a digest": (
        manifest(code={"archive": "gs://bucket/code.tar.gz", "sha256": "0" * 32}),
        ["spec.code.sha256"],
    ),
    "code of nowhere": (manifest(code={"commit": "0" * 40}), ["spec.code", "give either archive and sha256, or"]),
    "code of two places": (
        manifest(
            code={"archive": "gs://bucket/code.tar.gz", "sha256": "0" * 64, "repository": "https://git.example/a"}
        ),
        ["spec.code", "give either archive and sha256, or repository and commit"],
    ),
    "code of a branch": (
        manifest(code={"repository": "https://git.example/a", "commit": "main"}),
        ["spec.code.commit"],
    ),
    "code of a repository": (
        manifest(code={"repository": "https://git.example/a"}),
        ["spec.code.commit", "a repository needs the whole commit, 40 hexadecimal digits"],
    ),
    "code of a commit with changes": (
        manifest(code={"repository": "https://git.example/a", "commit": "0" * 40 + "+changes"}),
        ["spec.code.commit", "a repository needs the whole commit"],
    ),
    "code of a commit and a digest": (
        manifest(code={"repository": "https://git.example/a", "commit": "0" * 40, "sha256": "0" * 64}),
        ["spec.code.sha256", "a repository has none"],
    ),
    "code of a password": (
        manifest(code={"repository": "https://me:secret@git.example/a", "commit": "0" * 40}),
        ["spec.code.repository"],
    ),
    "code without encryption": (
        manifest(code={"repository": "http://git.example/a", "commit": "0" * 40}),
        ["spec.code.repository"],
    ),
    "code of a repository on no volume": (
        manifest(accelerator="v5e-16", code={"repository": "file:///share/project", "commit": "0" * 40}),
        ["spec.code.repository", "is on no volume of the job"],
    ),
    "code from elsewhere": (
        manifest(code={"archive": "https://example.com/code.tar.gz", "sha256": "0" * 64}),
        ["spec.code.archive"],
    ),
    "a volume over the code": (
        manifest(volumes=[{"name": "a", "mountPath": "/tpujob-code", "secret": "s"}]),
        ["spec.volumes[0].mountPath", "take another path"],
    ),
    "a label of JobSet's": (
        manifest(podLabels={"jobset.sigs.k8s.io/job-index": "1"}),
        ["spec.podLabels", "has a key that belongs to"],
    ),
    "an annotation of Kueue's": (
        manifest(podAnnotations={"kueue.x-k8s.io/podset-slice-size": "1"}),
        ["spec.podAnnotations", "has a key that belongs to"],
    ),
    "privileges": (manifest(securityContext={"privileged": True}), ['unknown field "spec.securityContext"']),
    "no form": (
        manifest(accelerator="tpu"),
        ["spec.accelerator", "not an accelerator; allowed: a size such as v5e-256"],
    ),
    "upper case": (manifest(accelerator="V4-8"), ["not an accelerator"]),
    "v4-12": (manifest(accelerator="v4-12"), ["v4 names count cores, 2 a chip", "v4-8 (4 chips on 1 host), v4-16"]),
    "v4-99998": (manifest(accelerator="v4-99998"), ["nearest: v4-4096"]),
    "v5litepod-24": (manifest(accelerator="v5litepod-24"), ["v5e-16 (16 chips on 4 hosts), v5e-32"]),
    "v5p-100": (manifest(accelerator="v5p-100"), ["v5p-64 (32 chips on 8 hosts), v5p-128"]),
    "v6e:3x4": (manifest(accelerator="v6e:3x4"), ["no v6e shape; shapes: 1x1, 2x2"]),
    "v6e:4x4x4": (manifest(accelerator="v6e:4x4x4"), ["not an accelerator"]),
    "v5p:4x4x6": (manifest(accelerator="v5p:4x4x6"), ["every dimension a multiple of 4, smallest first"]),
    "v5p:8x4x4": (manifest(accelerator="v5p:8x4x4"), ["smallest first"]),
    "v4:16x16x20": (manifest(accelerator="v4:16x16x20"), ["up to 4096 chips"]),
    "a selector in the accelerator": (manifest(accelerator="v4-8\nx"), ["not an accelerator"]),
    "a very long accelerator": (manifest(accelerator="v" * 10000), ["spec.accelerator", "Too long"]),
    "no slices": (manifest(slices=0), ["spec.slices", "greater than or equal to 1"]),
    "a million slices": (manifest(slices=10**6), ["spec.slices", "less than or equal to 256"]),
    "a million workers": (manifest(workers=10**6), ["spec.workers", "less than or equal to 4096"]),
    "slices in quotes": (manifest(slices="2"), ["spec.slices", 'must be of type integer: "string"']),
    "slices and workers": (manifest(slices=1, workers=1), ["slices and workers exclude each other"]),
    "fewest slices of one": (
        _elastic(slices=None, minSlices=1),
        ["spec.minSlices", "of which there must be 2 or more"],
    ),
    "more slices at least than at most": (_elastic(minSlices=5), ["spec.minSlices", "is at most slices"]),
    "fewest slices of workers": (
        _elastic(slices=None, workers=4, accelerator="cpu:1x4"),
        ["spec.minSlices", "is at most slices"],
    ),
    "fewer slices without checkpoints": (
        _elastic(checkpointDir=None),
        ["spec.minSlices", "needs checkpointDir, from which the job goes on"],
    ),
    "fewer slices in a queue": (_elastic(queue="q"), ["spec.minSlices", "Kueue admits all slices of a job or none"]),
    "a wait for slices that may not be fewer": (
        _elastic(minSlices=None, shrinkAfterSeconds=60),
        ["spec.shrinkAfterSeconds", "needs minSlices"],
    ),
    "growth of slices that were never fewer": (
        _elastic(minSlices=None, growAfterSeconds=3600),
        ["spec.growAfterSeconds", "needs minSlices"],
    ),
    "a wait for slices that hosts do not survive": (
        _elastic(shrinkAfterSeconds=600),
        ["spec.shrinkAfterSeconds", "is not less than startupSeconds"],
    ),
    "the usual wait for slices, and hosts that give up early": (
        _elastic(startupSeconds=120),
        ["spec.shrinkAfterSeconds", "is not less than startupSeconds"],
    ),
    "trainer and command": (manifest(image="x", command=["y"]), ["give either trainer, or image and command"]),
    "neither": (manifest(trainer=None), ["give either trainer, or image and command"]),
    "image alone": (container_manifest(command=None), ["give either trainer, or image and command"]),
    "command alone": (container_manifest(image=None), ["image and command go together"]),
    "args alone": (manifest(args=["x"]), ["spec.args", "args go with command"]),
    "a shell line": (container_manifest(command="rm -rf /"), ["spec.command", "must be of type array"]),
    "too many arguments": (container_manifest(args=["x"] * 513), ["spec.args", "Too many"]),
    "reserved variable": (_env("TPUJOB_COORDINATOR", value="x:1"), ["TPUJOB_COORDINATOR belongs to the operator"]),
    "reserved megascale": (_env("MEGASCALE_NUM_SLICES", value="9"), ["belongs to the operator"]),
    "reserved worker id": (_env("TPU_WORKER_ID", value="9"), ["belongs to the operator"]),
    **{
        f"reserved {name}": (_env(name, value="1"), [f"{name} belongs to the operator"])
        for name in ("TPU_PROCESS_ADDRESSES", "TPU_TOPOLOGY", "TPU_HOST_BOUNDS", "TPU_VISIBLE_CHIPS", "JAX_PROCESS_ID")
    },
    "a token in the open": (_env("HF_TOKEN", value="hf_x"), ["use valueFrom.secretKeyRef"]),
    **{
        f"a value of {name}": (_env(name, value="x"), [f"{name} does not belong in a manifest"])
        for name in ("GITHUB_TOKEN", "WANDB_API_KEY", "CLIENT_SECRET", "DB_PASSWORD", "TOKEN")
    },
    "a NUL in an argument": (container_manifest(args=["a\0b"]), ["spec.args[0]", "should match"]),
    "a NUL in a variable": (_env("A", value="a\0b"), ["spec.env[0].value", "should match"]),
    "a megabyte of arguments": (container_manifest(args=["x" * 8000] * 100), ["every pod repeats them"]),
    "a lot of environment": (
        manifest(env=[{"name": f"A{i}", "value": "x" * 30000} for i in range(3)]),
        ["command, args and values of env have more than 65536 characters"],
    ),
    "value and source": (
        _env("A", value="1", valueFrom={"secretKeyRef": {"name": "s", "key": "k"}}),
        ["give value or valueFrom, not both"],
    ),
    "no source": (_env("A", valueFrom={}), ["give one of secretKeyRef, configMapKeyRef"]),
    "a variable twice": (manifest(env=[{"name": "A"}, {"name": "A"}]), ["spec.env[1]", "Duplicate value"]),
    "a strange variable": (_env("A B"), ["spec.env[0].name", "should match"]),
    "too many variables": (manifest(env=[{"name": f"A{i}"} for i in range(129)]), ["spec.env", "Too many"]),
    "JAX platforms on CPU": (_env("JAX_PLATFORMS", value="tpu"), ["are set by accelerator cpu:HOSTSxDEVICES"]),
    "another cloud": (
        manifest(checkpointDir="s3://b/x"),
        ["neither gs://BUCKET/PATH nor an absolute path; write one of them"],
    ),
    "a bucket in capitals": (manifest(checkpointDir="gs://My-Bucket/x"), ["names no bucket", "lower-case letters"]),
    "a directory above": (manifest(checkpointDir="gs://bucket/a/../b"), ["spec.checkpointDir", "contains .."]),
    "an absolute directory above": (manifest(checkpointDir="/mnt/.."), ["contains .."]),
    "a relative path": (manifest(checkpointDir="here"), ["neither gs://BUCKET/PATH nor an absolute path"]),
    "capacities": (manifest(capacity={"spot": True, "flexStart": True}), ["exclude each other; keep one"]),
    "a sub-block of no block": (
        manifest(capacity={"reservation": {"name": "r", "subBlock": "s"}}),
        ["spec.capacity.reservation.subBlock", "give block, too"],
    ),
    "a class and spot": (manifest(capacity={"computeClass": "c", "spot": True}), ["exclude each other; keep one"]),
    "queued provisioning and spot": (
        manifest(queue="q", capacity={"queuedProvisioning": {}, "spot": True}),
        ["exclude each other; keep one"],
    ),
    "queued provisioning without a queue": (
        manifest(capacity={"queuedProvisioning": {"maxRunSeconds": 3600}}),
        ["spec.capacity.queuedProvisioning", "give queue"],
    ),
    "queued provisioning for 8 days": (
        manifest(queue="q", capacity={"queuedProvisioning": {"maxRunSeconds": 691200}}),
        ["spec.capacity.queuedProvisioning.maxRunSeconds"],
    ),
    "a part of a pool without a queue": (
        manifest(accelerator="v6e-16", placement={"poolTopology": "16x16"}),
        ["spec.placement", "give queue, and no workers"],
    ),
    "two ways of placing": (
        manifest(queue="q", placement={"superSlice": True, "requiredTopology": "cloud.google.com/gke-nodepool"}),
        ["exclude each other; keep one"],
    ),
    "owned selector": (
        manifest(nodeSelector={"cloud.google.com/gke-tpu-topology": "2x2"}),
        ["is set by spec.accelerator; leave it out"],
    ),
    "tolerating the end": (
        manifest(tolerations=[{"key": "cloud.google.com/impending-node-termination", "operator": "Exists"}]),
        ["never tolerate it"],
    ),
    "seconds of a taint that evicts nobody": (
        manifest(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]),
        ["tolerationSeconds goes with effect NoExecute alone"],
    ),
    "seconds without an effect": (
        manifest(tolerations=[{"key": "a", "tolerationSeconds": 5}]),
        ["tolerationSeconds goes with effect NoExecute alone"],
    ),
    "tolerating everything": (manifest(tolerations=[{"operator": "Exists"}]), ["spec.tolerations[0].key: Required"]),
    "a strange operator": (manifest(tolerations=[{"key": "a", "operator": "In"}]), ["supported values"]),
    "grace of an hour and more": (manifest(gracePeriodSeconds=3601), ["spec.gracePeriodSeconds"]),
    "negative ttl": (manifest(ttlSecondsAfterFinished=-1), ["spec.ttlSecondsAfterFinished"]),
    "a million crashes": (manifest(restarts={"crashes": 10**6}), ["spec.restarts.crashes"]),
    "a strange queue": (manifest(queue="a/b"), ["spec.queue"]),
    "Kueue's topology without a queue": (
        manifest(placement={"requiredTopology": "cloud.google.com/gke-nodepool"}),
        ["spec.placement", "give queue, and no workers"],
    ),
    "a strange account": (manifest(serviceAccountName="../x"), ["spec.serviceAccountName"]),
    "a strange policy": (manifest(imagePullPolicy="always"), ['supported values: "Always"']),
    "an image with spaces": (container_manifest(image="a b"), ["spec.image"]),
    "an image in capitals": (container_manifest(image="example.com/Mine:1"), ["spec.image"]),
    "an image with two tags": (container_manifest(image="mine:1:2"), ["spec.image"]),
    "an image by a URL": (container_manifest(image="https://example.com/mine"), ["spec.image"]),
    "a short digest": (container_manifest(image="mine@sha256:abc"), ["spec.image"]),
    "a class of the system's": (
        manifest(priorityClassName="system-node-critical"),
        ["spec.priorityClassName", "is for Kubernetes' own pods"],
    ),
    "more memory than the limit": (
        manifest(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1500Mi"}}),
        ["requests.memory is more than limits.memory"],
    ),
    "more processors than the limit": (
        manifest(resources={"requests": {"cpu": 2}, "limits": {"cpu": "500m"}}),
        ["requests.cpu is more than limits.cpu"],
    ),
    "an amount in words": (manifest(resources={"limits": {"memory": "lots"}}), ["spec.resources.limits.memory"]),
    "chips as resources": (manifest(resources={"limits": {"google.com/tpu": 4}}), ["unknown field"]),
    "50 characters": (manifest("a" * 50), ["metadata.name has more than 49 characters"]),
    "a digit first": (manifest("3d"), ["metadata.name begins with a lower-case letter"]),
    "a dot": (manifest("a.b"), ["metadata.name begins with a lower-case letter"]),
    "an empty trainer": (manifest(trainer={}), ["spec.trainer"]),
    "a trainer without data": (manifest(trainer={"model": {"preset": "tiny"}}), ["spec.trainer.data: Required value"]),
    "a trainer with a wrong type": (manifest(trainer={**TRAINER, "steps": "many"}), ["spec.trainer.steps"]),
    "path and dataset": (
        manifest(trainer={**TRAINER, "data": {"path": "gs://b/x", "dataset": "a/b"}}),
        ["spec.trainer.data", "path, dataset and mixture exclude each other"],
    ),
    "heads that do not divide": (
        manifest(trainer={**TRAINER, "model": {"preset": "tiny", "heads": 4, "kvHeads": 3}}),
        ["spec.trainer.model.kvHeads", "kvHeads does not divide heads"],
    ),
    "a trainer that is a string": (manifest(trainer="x"), ["spec.trainer", "must be of type object"]),
    "a loss of one's own with zLoss": (
        manifest(trainer={**TRAINER, "loss": "mine:loss", "zLoss": 1e-4}),
        ["spec.trainer.zLoss", "excludes loss, which can have such a term itself"],
    ),
    "an extraction on several hosts": (
        manifest(accelerator="v5e-16", checkpointDir="gs://bucket/a", trainer=EXTRACTION),
        ["is for independent workers of one host each; set spec.workers"],
    ),
    "an extraction without a directory": (
        manifest(accelerator="v5e-4", workers=2, trainer=EXTRACTION),
        ["spec.checkpointDir", "required for tasks of workers, which write their files there"],
    ),
    "training by independent workers": (
        manifest(accelerator="v5e-4", workers=2, trainer=TRAINER),
        ["spec.workers", "excludes a training run, whose hosts work together"],
    ),
    "an export of a model of one's own": (
        manifest(trainer={**TRAINER, "model": {"custom": "mine:Model"}, "batchSize": 8, "export": {}}),
        ["spec.trainer.export", "transformers knows no model.custom"],
    ),
    "an average that is not kept": (
        manifest(trainer={**TRAINER, "evaluation": {"everySteps": 5, "average": True}}),
        ["spec.trainer.evaluation", "average: requires optimizer.emaDecay"],
    ),
}


# What only the operator can refuse, which it does as soon as it sees the job: (resource, words of its sentence)
LEFT_TO_THE_OPERATOR = {
    "copies on a volume of the pod": (
        manifest(
            accelerator="v5e-16",
            volumes=[{"name": "ram", "mountPath": "/copies", "emptyDir": {"medium": "Memory"}}],
            trainer={**TRAINER, "checkpoint": {"local": {"dir": "/copies/a", "everySteps": 10}}},
        ),
        'spec.trainer.checkpoint.local.dir: "/copies/a" is on volume ram, which does not outlive the pod',
    ),
    "a batch that does not divide over fewer slices": (
        _elastic(minSlices=3, trainer={**TRAINER, "batchSize": 32}),
        "do not divide over the devices of 3 slices; 1, 2 would do",
    ),
    "a batch that divides over all slices alone": (
        _elastic(slices=3, minSlices=2, trainer={**TRAINER, "batchSize": 27}, accelerator="cpu:3x3"),
        "do not divide over the devices of 2 slices; 1 would do",
    ),
    "a part of a pool of another generation": (
        manifest(accelerator="v5e-16", queue="q", placement={"poolTopology": "16x16"}),
        "sub-slices are for v6e",
    ),
    "a part of a pool that is no part": (
        manifest(accelerator="v6e:4x8", queue="q", placement={"poolTopology": "4x4"}),
        "cannot be divided into several slices of 4x8",
    ),
    "a super-slice of another generation": (
        manifest(accelerator="v5p-128", queue="q", placement={"superSlice": True}),
        "spec.placement.superSlice: is for tpu7x",
    ),
    "a super-slice of half a cube": (
        manifest(accelerator="tpu7x:2x4x4", queue="q", placement={"superSlice": True}),
        "made of cubes of 4x4x4 chips",
    ),
    "a super-slice with a long name": (
        manifest("a" * 29, accelerator="tpu7x:4x4x8", queue="q", placement={"superSlice": True}),
        "with superSlice at most 28",
    ),
    "steps and tokens": (manifest(trainer={**TRAINER, "tokens": 100}), "spec.trainer.tokens: excludes steps"),
    "no length of the run": (
        manifest(trainer={key: value for key, value in TRAINER.items() if key != "steps"}),
        "spec.trainer.steps: is missing; give steps or tokens",
    ),
    "warm-up to the end": (
        manifest(trainer={**TRAINER, "optimizer": {"warmupSteps": 10}}),
        "spec.trainer.optimizer.warmupSteps: 10 leaves nothing of the run's 10 steps",
    ),
    "rows that do not divide": (
        manifest(trainer={**TRAINER, "batchSize": 20}),
        "spec.trainer.batchSize: 20 rows do not divide over 8 devices; 16, 24 and 32 do",
    ),
    "a huge trainer block": (
        manifest(trainer={**TRAINER, "extra": "x" * 70000}),
        "spec.trainer: the spec is 70",
    ),
}
