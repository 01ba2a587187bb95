# ruff: noqa: E501 - a table
"""Wrong jobs: what runs in their pods."""

from typing import Any

from tests.operator.manifests import container_manifest, manifest
from tests.wrong_inputs.row import Job, Wrong

SMALL: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "data/*.parquet"}, "steps": 10}


def _variable(name: str, **fields: Any) -> Job:
    return manifest(env=[{"name": name, **fields}])


def _variables(*variables: Job) -> Job:
    return manifest(env=list(variables))


def _spec(**fields: Any) -> Job:
    return manifest("job", **{"accelerator": "cpu:2x1", "trainer": SMALL, **fields})


def _image(**fields: Any) -> Job:
    return container_manifest("job", **{"accelerator": "cpu:2x1", "image": "a/b:1", "command": ["train"], **fields})


ROWS: dict[str, Wrong] = {
    "unknown field deep": Wrong(
        _variable("A", valueFrom={"secretKeyRef": {"name": "s", "key": "k", "ns": "x"}}),
        "spec.env[0].valueFrom.secretKeyRef.ns: there is no such field",
        api='unknown field "spec.env[0].valueFrom.secretKeyRef.ns"',
    ),
    "a namespace in a reference": Wrong(
        _variable("A", valueFrom={"secretKeyRef": {"name": "s", "key": "k", "namespace": "kube-system"}}),
        "spec.env[0].valueFrom.secretKeyRef.namespace: there is no such field; did you mean name?",
        api='unknown field "spec.env[0].valueFrom.secretKeyRef.namespace"',
    ),
    "host paths": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": "/a", "hostPath": {"path": "/"}}]),
        "spec.volumes[0].hostPath: there is no such field; did you mean mountPath?",
        api='unknown field "spec.volumes[0].hostPath"',
    ),
    "a volume of no kind": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": "/a"}]),
        "spec.volumes[0]: give one of persistentVolumeClaim, gcs, secret, configMap and emptyDir",
    ),
    "a volume of two kinds": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": "/a", "secret": "s", "configMap": "c"}]),
        "spec.volumes[0]: give one of persistentVolumeClaim, gcs, secret, configMap and emptyDir",
    ),
    "a volume of the operator's name": Wrong(
        manifest(volumes=[{"name": "tmp", "mountPath": "/a", "secret": "s"}]),
        'spec.volumes[0].name: "tmp" is the operator\'s own; take another',
    ),
    "a volume over the operator's": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": "/dev/shm", "secret": "s"}]),
        'spec.volumes[0].mountPath: "/dev/shm" is the operator\'s own; take another',
    ),
    "a volume twice": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": path, "secret": "s"} for path in ("/a", "/b")]),
        'spec.volumes[1].name: "a" is there twice; keep one',
        api='spec.volumes[1]: Duplicate value: {"name":"a"}',
    ),
    "a relative mount": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": "a/b", "secret": "s"}]),
        'spec.volumes[0].mountPath: "a/b" is not an absolute path without colons; write /NAME',
        api="spec.volumes[0].mountPath: Invalid value: \"a/b\": spec.volumes[0].mountPath in body should match '^/[^:\\x00]+$'",
    ),
    "a mount above": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": "/a/../b", "secret": "s"}]),
        'spec.volumes[0].mountPath: "/a/../b" contains ..; write the directory that is meant',
    ),
    "a volume over the code": Wrong(
        manifest(volumes=[{"name": "a", "mountPath": "/tpujob-code", "secret": "s"}]),
        'spec.volumes[0].mountPath: "/tpujob-code" is the operator\'s own; take another',
    ),
    "a label of JobSet's": Wrong(
        manifest(podLabels={"jobset.sigs.k8s.io/job-index": "1"}),
        'spec.podLabels["jobset.sigs.k8s.io/job-index"]: belongs to Kubernetes, JobSet, Kueue or the operator; leave it out',
    ),
    "an annotation of Kueue's": Wrong(
        manifest(podAnnotations={"kueue.x-k8s.io/podset-slice-size": "1"}),
        'spec.podAnnotations["kueue.x-k8s.io/podset-slice-size"]: belongs to Kubernetes, JobSet, Kueue or the operator; leave it out',
    ),
    "trainer and command": Wrong(
        manifest(image="x", command=["y"]),
        "spec.command: excludes trainer, which brings its own; keep one of them",
    ),
    "image alone": Wrong(
        container_manifest(command=None),
        "spec.command: is missing; the image's own entry point cannot be seen from outside, so name the command",
    ),
    "command alone": Wrong(
        container_manifest(image=None),
        "spec.image: is missing; command says what to run, image in what",
    ),
    "args alone": Wrong(
        manifest(args=["x"]),
        "spec.args: excludes trainer, which brings its own; keep one of them",
    ),
    "a shell line": Wrong(
        container_manifest(command="rm -rf /"),
        'spec.command: "rm -rf /" is not a list; write [rm, -rf, /]',
        api='spec.command: Invalid value: "string": spec.command in body must be of type array: "string"',
    ),
    "too many arguments": Wrong(
        container_manifest(args=["x"] * 513),
        'spec.args: ["x", "x", "x", "x", "x", "x", "x", "x", "x", "x", "x", "x"… has 513 entries; at most 512',
        api="spec.args: Too many: 513: must have at most 512 items",
    ),
    "reserved variable": Wrong(
        _variable("TPUJOB_COORDINATOR", value="x:1"),
        'spec.env[0].name: "TPUJOB_COORDINATOR" belongs to the operator, which sets what is right for each process',
    ),
    "reserved megascale": Wrong(
        _variable("MEGASCALE_NUM_SLICES", value="9"),
        'spec.env[0].name: "MEGASCALE_NUM_SLICES" belongs to the operator, which sets what is right for each process',
    ),
    "reserved worker id": Wrong(
        _variable("TPU_WORKER_ID", value="9"),
        'spec.env[0].name: "TPU_WORKER_ID" belongs to the operator, which sets what is right for each process',
    ),
    "a token in the open": Wrong(
        _variable("HF_TOKEN", value="hf_x"),
        'spec.env[0].name: "HF_TOKEN" has a value that does not belong in a manifest; use valueFrom.secretKeyRef',
    ),
    "a NUL in an argument": Wrong(
        container_manifest(args=["a\0b"]),
        'spec.args[0]: "a\\u0000b" has a NUL character; leave it out',
        api="spec.args[0]: Invalid value: \"a\\x00b\": spec.args[0] in body should match '^[^\\x00]*$'",
    ),
    "a NUL in a variable": Wrong(
        _variable("A", value="a\0b"),
        'spec.env[0].value: "a\\u0000b" has a NUL character; leave it out',
        api="spec.env[0].value: Invalid value: \"a\\x00b\": spec.env[0].value in body should match '^[^\\x00]*$'",
    ),
    "a megabyte of arguments": Wrong(
        container_manifest(args=["x" * 8000] * 100),
        "spec.args: the spec is 800452 bytes of JSON, 800400 of them here; at most 65536, as every pod repeats it: put data in the image, a ConfigMap or the bucket",
        api="spec",
    ),
    "a lot of environment": Wrong(
        manifest(env=[{"name": f"A{i}", "value": "x" * 30000} for i in range(3)]),
        "spec.env: the spec is 90186 bytes of JSON, 90087 of them here; at most 65536, as every pod repeats it: put data in the image, a ConfigMap or the bucket",
        api="spec",
    ),
    "value and source": Wrong(
        _variable("A", value="1", valueFrom={"secretKeyRef": {"name": "s", "key": "k"}}),
        "spec.env[0]: give value or valueFrom, not both",
    ),
    "no source": Wrong(
        _variable("A", valueFrom={}),
        "spec.env[0].valueFrom: give one of secretKeyRef and configMapKeyRef",
    ),
    "a variable twice": Wrong(
        manifest(env=[{"name": "A"}, {"name": "A"}]),
        'spec.env[1].name: "A" is there twice; keep one',
        api='spec.env[1]: Duplicate value: {"name":"A"}',
    ),
    "a strange variable": Wrong(
        _variable("A B"),
        'spec.env[0].name: "A B" is not a variable\'s name; allowed: letters, digits, _, . and -, not a digit first',
        api="spec.env[0].name: Invalid value: \"A B\": spec.env[0].name in body should match '^[A-Za-z_][A-Za-z0-9_.-]*$'",
    ),
    "too many variables": Wrong(
        manifest(env=[{"name": f"A{i}"} for i in range(129)]),
        'spec.env: [{"name": "A0"}, {"name": "A1"}, {"name": "A2"}, {"name": "… has 129 entries; at most 128',
        api="spec.env: Too many: 129: must have at most 128 items",
    ),
    "JAX platforms on CPU": Wrong(
        _variable("JAX_PLATFORMS", value="tpu"),
        'spec.env[0].name: "JAX_PLATFORMS" is set by accelerator cpu:HOSTSxDEVICES; leave it out',
    ),
    "grace of an hour and more": Wrong(
        manifest(gracePeriodSeconds=3601),
        "spec.gracePeriodSeconds: 3601 is too large; at most 3600",
        api="spec.gracePeriodSeconds",
    ),
    "negative ttl": Wrong(
        manifest(ttlSecondsAfterFinished=-1),
        "spec.ttlSecondsAfterFinished: -1 is too small; at least 0",
        api="spec.ttlSecondsAfterFinished",
    ),
    "restarts as a number": Wrong(
        manifest(restarts=3),
        "spec.restarts: 3 is not a mapping; write {crashes: 3}",
        api='spec.restarts: Invalid value: "integer"',
    ),
    "memory with a B": Wrong(
        manifest(resources={"limits": {"memory": "64GB"}}),
        'spec.resources.limits.memory: "64GB" is not an amount such as 8, "500m" or "64Gi"; write 64Gi',
        api="spec.resources.limits.memory",
    ),
    "a million crashes": Wrong(
        manifest(restarts={"crashes": 10**6}),
        "spec.restarts.crashes: 1000000 is too large; at most 1000",
        api="spec.restarts.crashes",
    ),
    "a strange account": Wrong(
        manifest(serviceAccountName="../x"),
        'spec.serviceAccountName: "../x" is not a name in Kubernetes; allowed: lower-case letters, digits and -, beginning and ending with a letter or digit, and dots within',
        api="spec.serviceAccountName",
    ),
    "a strange policy": Wrong(
        manifest(imagePullPolicy="always"),
        "spec.imagePullPolicy: \"always\" is not allowed; one of 'Always', 'IfNotPresent' or 'Never'",
        api='spec.imagePullPolicy: Unsupported value: "always": supported values: "Always", "IfNotPresent", "Never"',
    ),
    "an image with spaces": Wrong(
        container_manifest(image="a b"),
        'spec.image: "a b" is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, DIGEST of 64 digits',
        api="spec.image",
    ),
    "an image in capitals": Wrong(
        container_manifest(image="example.com/Mine:1"),
        'spec.image: "example.com/Mine:1" is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, DIGEST of 64 digits',
        api="spec.image",
    ),
    "an image with two tags": Wrong(
        container_manifest(image="mine:1:2"),
        'spec.image: "mine:1:2" is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, DIGEST of 64 digits',
        api="spec.image",
    ),
    "an image by a URL": Wrong(
        container_manifest(image="https://example.com/mine"),
        'spec.image: "https://example.com/mine" is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, DIGEST of 64 digits',
        api="spec.image",
    ),
    "a short digest": Wrong(
        container_manifest(image="mine@sha256:abc"),
        'spec.image: "mine@sha256:abc" is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, DIGEST of 64 digits',
        api="spec.image",
    ),
    "more memory than the limit": Wrong(
        manifest(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1500Mi"}}),
        'spec.resources.requests.memory: "2Gi" is more than limits.memory; lower it, or raise the limit',
    ),
    "more processors than the limit": Wrong(
        manifest(resources={"requests": {"cpu": 2}, "limits": {"cpu": "500m"}}),
        "spec.resources.requests.cpu: 2 is more than limits.cpu; lower it, or raise the limit",
        api="spec.resources.requests.cpu: Invalid value: is more than limits.cpu; lower it, or raise the limit",
    ),
    "an amount in words": Wrong(
        manifest(resources={"limits": {"memory": "lots"}}),
        'spec.resources.limits.memory: "lots" is not an amount such as 8, "500m" or "64Gi"',
        api="spec.resources.limits.memory",
    ),
    "chips as resources": Wrong(
        manifest(resources={"limits": {"google.com/tpu": 4}}),
        'spec.resources.limits["google.com/tpu"]: there is no such field',
        api='unknown field "spec.resources.limits.google.com/tpu"',
    ),
    "reserved TPU_PROCESS_ADDRESSES": Wrong(
        _variable("TPU_PROCESS_ADDRESSES", value="1"),
        'spec.env[0].name: "TPU_PROCESS_ADDRESSES" belongs to the operator, which sets what is right for each process',
    ),
    "reserved TPU_TOPOLOGY": Wrong(
        _variable("TPU_TOPOLOGY", value="1"),
        'spec.env[0].name: "TPU_TOPOLOGY" belongs to the operator, which sets what is right for each process',
    ),
    "reserved TPU_HOST_BOUNDS": Wrong(
        _variable("TPU_HOST_BOUNDS", value="1"),
        'spec.env[0].name: "TPU_HOST_BOUNDS" belongs to the operator, which sets what is right for each process',
    ),
    "reserved TPU_VISIBLE_CHIPS": Wrong(
        _variable("TPU_VISIBLE_CHIPS", value="1"),
        'spec.env[0].name: "TPU_VISIBLE_CHIPS" belongs to the operator, which sets what is right for each process',
    ),
    "reserved JAX_PROCESS_ID": Wrong(
        _variable("JAX_PROCESS_ID", value="1"),
        'spec.env[0].name: "JAX_PROCESS_ID" belongs to the operator, which sets what is right for each process',
    ),
    "a value of GITHUB_TOKEN": Wrong(
        _variable("GITHUB_TOKEN", value="x"),
        'spec.env[0].name: "GITHUB_TOKEN" has a value that does not belong in a manifest; use valueFrom.secretKeyRef',
    ),
    "a value of WANDB_API_KEY": Wrong(
        _variable("WANDB_API_KEY", value="x"),
        'spec.env[0].name: "WANDB_API_KEY" has a value that does not belong in a manifest; use valueFrom.secretKeyRef',
    ),
    "a value of CLIENT_SECRET": Wrong(
        _variable("CLIENT_SECRET", value="x"),
        'spec.env[0].name: "CLIENT_SECRET" has a value that does not belong in a manifest; use valueFrom.secretKeyRef',
    ),
    "a value of DB_PASSWORD": Wrong(
        _variable("DB_PASSWORD", value="x"),
        'spec.env[0].name: "DB_PASSWORD" has a value that does not belong in a manifest; use valueFrom.secretKeyRef',
    ),
    "a value of TOKEN": Wrong(
        _variable("TOKEN", value="x"),
        'spec.env[0].name: "TOKEN" has a value that does not belong in a manifest; use valueFrom.secretKeyRef',
    ),
    "misspelt deep inside": Wrong(
        _variables({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "keys": "k"}}}),
        "spec.env[0].valueFrom.secretKeyRef.key: is missing",
        "spec.env[0].valueFrom.secretKeyRef.keys: there is no such field; did you mean key?",
        api='unknown field "spec.env[0].valueFrom.secretKeyRef.keys"',
    ),
    "misspelt amount": Wrong(
        manifest(resources={"requests": {"ephemeral_storage": "1Gi"}}),
        "spec.resources.requests.ephemeral_storage: there is no such field; did you mean ephemeral-storage?",
        api='unknown field "spec.resources.requests.ephemeral_storage"',
    ),
    "a value that is no string": Wrong(
        _variables({"name": "A", "value": 1}),
        "spec.env[0].value: 1 is not a string; put it in quotes",
        api='spec.env[0].value: Invalid value: "integer": spec.env[0].value in body must be of type string: "integer"',
    ),
    "yes is not true": Wrong(
        manifest(suspend="yes"),
        'spec.suspend: "yes" is neither true nor false',
        api='spec.suspend: Invalid value: "string": spec.suspend in body must be of type boolean: "string"',
    ),
    "a wrong amount": Wrong(
        manifest(resources={"limits": {"memory": "64 GB"}}),
        'spec.resources.limits.memory: "64 GB" is not an amount such as 8, "500m" or "64Gi"',
        api="spec.resources.limits.memory",
    ),
    "an amount that is a list": Wrong(
        manifest(resources={"limits": {"cpu": [8]}}),
        'spec.resources.limits.cpu: [8] is not an amount such as 8, "500m" or "64Gi"',
        api="spec.resources.limits.cpu",
    ),
    "reserved variables": Wrong(
        _variables({"name": "TPUJOB_SLICE", "value": "0"}, {"name": "TPU_WORKER_ID"}),
        'spec.env[0].name: "TPUJOB_SLICE" belongs to the operator, which sets what is right for each process',
        'spec.env[1].name: "TPU_WORKER_ID" belongs to the operator, which sets what is right for each process',
    ),
    "a variable of two sources": Wrong(
        _variable(
            "A", valueFrom={"secretKeyRef": {"name": "s", "key": "k"}, "configMapKeyRef": {"name": "s", "key": "k"}}
        ),
        "spec.env[0].valueFrom: give one of secretKeyRef and configMapKeyRef",
    ),
    "more disk than the limit": Wrong(
        manifest(resources={"requests": {"ephemeral-storage": "2Gi"}, "limits": {"ephemeral-storage": "1Gi"}}),
        'spec.resources.requests.ephemeral-storage: "2Gi" is more than limits.ephemeral-storage; lower it, or raise the limit',
    ),
    "a volume path twice": Wrong(
        manifest(volumes=[{"name": name, "mountPath": "/a", "secret": "s"} for name in ("a", "b")]),
        'spec.volumes[1].mountPath: "/a" is there twice; keep one',
    ),
    "variables as a mapping": Wrong(
        _image(env={"LR": "0.1"}),
        'spec.env: {"LR": "0.1"} is not a list; write [{name: NAME, value: "VALUE"}], an entry for each',
        api='unknown field "spec.env.LR"',
    ),
    "an image with its scheme": Wrong(
        _image(image="https://ghcr.io/me/train:1"),
        'spec.image: "https://ghcr.io/me/train:1" is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, DIGEST of 64 digits',
        api="spec.image",
    ),
    "a volume in capitals": Wrong(
        _image(volumes=[{"name": "Data", "mountPath": "/data", "emptyDir": {}}]),
        'spec.volumes[0].name: "Data" is not a name in a pod; allowed: lower-case letters, digits and -, beginning and ending with a letter or digit',
        api="spec.volumes[0].name",
    ),
    "a relative mount again": Wrong(
        _image(volumes=[{"name": "data", "mountPath": "data", "emptyDir": {}}]),
        'spec.volumes[0].mountPath: "data" is not an absolute path without colons; write /NAME',
        api="spec.volumes[0].mountPath",
    ),
    "a command as text": Wrong(
        _image(command="python train.py"),
        'spec.command: "python train.py" is not a list; write [python, train.py]',
        api='spec.command: Invalid value: "string": spec.command in body must be of type array: "string"',
    ),
    "an empty command": Wrong(
        _image(command=[]),
        "spec.command: [] is empty; at least 1 entry",
        api="spec.command: Invalid value: 0: spec.command in body should have at least 1 items",
    ),
    "arguments as text": Wrong(
        _image(args="--steps 5"),
        'spec.args: "--steps 5" is not a list; write [--steps, 5]',
        api='spec.args: Invalid value: "string": spec.args in body must be of type array: "string"',
    ),
    "a framework beside the trainer": Wrong(
        _spec(framework="maxtext"),
        "spec.framework: excludes trainer, which brings its own; keep one of them",
    ),
    "an unknown framework": Wrong(
        _image(framework="torch"),
        "spec.framework: \"torch\" is not allowed; one of 'maxtext' or 'pytorch'",
        api='spec.framework: Unsupported value: "torch": supported values: "maxtext", "pytorch"',
    ),
    "a reserved variable": Wrong(
        _variables({"name": "TPUJOB_SLICE", "value": "1"}),
        'spec.env[0].name: "TPUJOB_SLICE" belongs to the operator, which sets what is right for each process',
    ),
    "a mapping of variables": Wrong(
        _image(env={"A": "1"}),
        'spec.env: {"A": "1"} is not a list; write [{name: NAME, value: "VALUE"}], an entry for each',
        api='unknown field "spec.env.A"',
    ),
    "an amount in words again": Wrong(
        _spec(resources={"limits": {"cpu": "8 cores"}}),
        'spec.resources.limits.cpu: "8 cores" is not an amount such as 8, "500m" or "64Gi"',
        api="spec.resources.limits.cpu",
    ),
    "a negative amount": Wrong(
        _spec(resources={"limits": {"memory": "-1Gi"}}),
        'spec.resources.limits.memory: "-1Gi" is not an amount such as 8, "500m" or "64Gi"',
        api="spec.resources.limits.memory",
    ),
    "an unknown resource": Wrong(
        _spec(resources={"limits": {"gpu": 1}}),
        "spec.resources.limits.gpu: there is no such field; did you mean cpu?",
        api='unknown field "spec.resources.limits.gpu"',
    ),
    "negative crashes": Wrong(
        _spec(restarts={"crashes": -1}),
        "spec.restarts.crashes: -1 is too small; at least 0",
        api="spec.restarts.crashes: Invalid value: -1: spec.restarts.crashes in body should be greater than or equal to 0",
    ),
    "no time to save": Wrong(
        _spec(gracePeriodSeconds=1),
        "spec.gracePeriodSeconds: 1 is too small; at least 5",
        api="spec.gracePeriodSeconds",
    ),
    "no time to start": Wrong(
        _spec(startupSeconds=5),
        "spec.startupSeconds: 5 is too small; at least 10",
        api="spec.startupSeconds: Invalid value: 5: spec.startupSeconds in body should be greater than or equal to 10",
    ),
}
