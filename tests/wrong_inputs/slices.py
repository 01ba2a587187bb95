# ruff: noqa: E501 - a table
"""Wrong jobs: accelerators, slices and workers."""

from typing import Any

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tests.wrong_inputs.row import ARITHMETIC, Job, Wrong
from tpujob_resource.topology.parse import COUNT_LABEL

SMALL: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "data/*.parquet"}, "steps": 10}


def _elastic(**fields: Any) -> Job:
    return manifest(**{"slices": 4, "minSlices": 2, "checkpointDir": "gs://bucket/llama", **fields})


def _spec(**fields: Any) -> Job:
    return manifest("job", **{"accelerator": "cpu:2x1", "trainer": SMALL, **fields})


def _image(**fields: Any) -> Job:
    return container_manifest("job", **{"accelerator": "cpu:2x1", "image": "a/b:1", "command": ["train"], **fields})


ROWS: dict[str, Wrong] = {
    "no accelerator": Wrong(
        manifest(accelerator=None),
        "spec.accelerator: is missing",
        api="spec.accelerator: Required value",
    ),
    "no form": Wrong(
        manifest(accelerator="tpu"),
        'spec.accelerator: "tpu" is not an accelerator',
        api="spec.accelerator",
    ),
    "upper case": Wrong(
        manifest(accelerator="V4-8"),
        'spec.accelerator: "V4-8": write it in lower case without spaces, "v4-8"',
        api="spec.accelerator",
    ),
    "a GPU": Wrong(
        manifest(accelerator="A100"),
        'spec.accelerator: "A100" is a GPU, and tpujob runs on TPUs and, to rehearse, on CPUs; allowed: a size',
        api="spec.accelerator",
    ),
    "v4-12": Wrong(
        manifest(accelerator="v4-12"),
        'spec.accelerator: "v4-12" would be 6 chips (v4 names count cores, 2 a chip), and no v4 slice has that many; nearest: v4-8 (4 chips on 1 host), v4-16 (8 chips on 2 hosts)',
        api="spec.accelerator",
    ),
    "v4-99998": Wrong(
        manifest(accelerator="v4-99998"),
        'spec.accelerator: "v4-99998" would be 49999 chips (v4 names count cores, 2 a chip), and no v4 slice has that many; nearest: v4-4096 (2048 chips on 512 hosts)',
        api="spec.accelerator",
    ),
    "v5litepod-24": Wrong(
        manifest(accelerator="v5litepod-24"),
        'spec.accelerator: "v5litepod-24" would be 24 chips, and no v5e slice has that many; nearest: v5e-16 (16 chips on 4 hosts), v5e-32 (32 chips on 8 hosts)',
        api="spec.accelerator",
    ),
    "v5p-100": Wrong(
        manifest(accelerator="v5p-100"),
        'spec.accelerator: "v5p-100" would be 50 chips (v5p names count cores, 2 a chip), and no v5p slice has that many; nearest: v5p-64 (32 chips on 8 hosts), v5p-128 (64 chips on 16 hosts)',
        api="spec.accelerator",
    ),
    "v6e:3x4": Wrong(
        manifest(accelerator="v6e:3x4"),
        'spec.accelerator: "v6e:3x4" is no v6e shape; shapes: 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16',
        api='spec.accelerator: Invalid value: "v6e:3x4": no v6e shape; shapes: 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16',
    ),
    "v6e:4x4x4": Wrong(
        manifest(accelerator="v6e:4x4x4"),
        'spec.accelerator: "v6e:4x4x4" has 3 dimensions, and v6e slices are AxB chips; nearest: v6e:4x8 (32 chips on 8 hosts), v6e:8x8 (64 chips on 16 hosts)',
        api="spec.accelerator",
    ),
    "v5p:4x4x6": Wrong(
        manifest(accelerator="v5p:4x4x6"),
        'spec.accelerator: "v5p:4x4x6" is no v5p shape: 2x2x1, 2x2x2, 2x2x4, 2x4x4, or from 4x4x4 up every dimension a multiple of 4; nearest: v5p:4x4x4 (64 chips on 16 hosts), v5p:4x4x8 (128 chips on 32 hosts)',
        api="spec.accelerator",
    ),
    "v5p:8x4x4": Wrong(
        manifest(accelerator="v5p:8x4x4"),
        'spec.accelerator: "v5p:8x4x4": write it as "v5p:4x4x8"',
        api="spec.accelerator",
    ),
    "v4:16x16x20": Wrong(
        manifest(accelerator="v4:16x16x20"),
        'spec.accelerator: "v4:16x16x20" would be 5120 chips, and the largest v4 slice has 4096 chips; nearest: v4:8x16x16 (2048 chips on 512 hosts)',
        api="spec.accelerator",
    ),
    "a selector in the accelerator": Wrong(
        manifest(accelerator="v4-8\nx"),
        'spec.accelerator: "v4-8\nx" is not an accelerator; for tpu-v4-podslice write v4-64 or v4:2x4x4',
        api="spec.accelerator",
    ),
    "a very long accelerator": Wrong(
        manifest(accelerator="v" * 10000),
        'spec.accelerator: "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv… is too long; at most 32 characters',
        api="spec.accelerator: Too long: may not be more than 32 bytes",
    ),
    "no slices": Wrong(
        manifest(slices=0),
        "spec.slices: 0 is too small; at least 1",
        api="spec.slices: Invalid value: 0: spec.slices in body should be greater than or equal to 1",
    ),
    "a million slices": Wrong(
        manifest(slices=10**6),
        "spec.slices: 1000000 is too large; at most 256",
        api="spec.slices",
    ),
    "a million workers": Wrong(
        manifest(workers=10**6),
        "spec.workers: 1000000 is too large; at most 4096",
        api="spec.workers",
    ),
    "slices in quotes": Wrong(
        manifest(slices="2"),
        'spec.slices: "2" is not a whole number; write 2, without quotes',
        api='spec.slices: Invalid value: "string": spec.slices in body must be of type integer: "string"',
    ),
    "slices and workers": Wrong(
        manifest(slices=1, workers=1),
        "spec.workers: excludes slices, which train together; workers are independent: keep one of them",
        "spec.workers: a worker is one host, and a slice of this accelerator has several; take one of one host, such as v5e-4, v6e-8 or cpu:1x4",
    ),
    "restarts in place of workers": Wrong(
        manifest(accelerator="v5e-4", workers=4, inPlaceRestarts=2),
        "spec.inPlaceRestarts: is for programs that start together; a worker starts again by itself: leave it out",
    ),
    "silence of a trainer": Wrong(
        manifest(silenceSeconds=600),
        "spec.silenceSeconds: excludes trainer, which brings its own; keep one of them",
    ),
    "fewest slices of one": Wrong(
        _elastic(slices=None, minSlices=1),
        "spec.minSlices: needs slices, and at least 2; a job of one slice has none to go on without",
    ),
    "more slices at least than at most": Wrong(
        _elastic(minSlices=5),
        "spec.minSlices: 5 is more than slices; lower it",
        api="spec.minSlices: Invalid value: is more than slices; lower it",
    ),
    "fewest slices of workers": Wrong(
        _elastic(slices=None, workers=4, accelerator="cpu:1x4"),
        "spec.minSlices: needs slices, and at least 2; a job of one slice has none to go on without",
    ),
    "fewer slices without checkpoints": Wrong(
        _elastic(checkpointDir=None),
        "spec.minSlices: needs checkpointDir, from which the job goes on with another number of slices",
    ),
    "a wait for slices that may not be fewer": Wrong(
        _elastic(minSlices=None, shrinkAfterSeconds=60),
        "spec.shrinkAfterSeconds: needs minSlices, the number of slices that the job may go on with",
    ),
    "growth of slices that were never fewer": Wrong(
        _elastic(minSlices=None, growAfterSeconds=3600),
        "spec.growAfterSeconds: needs minSlices, the number of slices that the job may go on with",
    ),
    "a wait for slices that hosts do not survive": Wrong(
        _elastic(shrinkAfterSeconds=600),
        "spec.shrinkAfterSeconds: 600 is not less than startupSeconds, after which hosts that wait for the missing ones fail (defaults: 300 and 600); raise startupSeconds or lower it",
        api="spec.shrinkAfterSeconds",
    ),
    "the usual wait for slices, and hosts that give up early": Wrong(
        _elastic(startupSeconds=120),
        "spec.shrinkAfterSeconds: is not less than startupSeconds, after which hosts that wait for the missing ones fail (defaults: 300 and 600); raise startupSeconds or lower it",
    ),
    "training by independent workers": Wrong(
        manifest(accelerator="v5e-4", workers=2, trainer=TRAINER),
        "spec.workers: excludes a training run, whose hosts work together; leave workers out, or set trainer.task",
    ),
    "a batch that does not divide over fewer slices": Wrong(
        _elastic(minSlices=3, trainer={**TRAINER, "batchSize": 32}),
        "spec.minSlices: the rows of a batch (spec.trainer.batchSize) do not divide over the devices of 3 slices; 1, 2 would do",
        later=ARITHMETIC,
    ),
    "a batch that divides over all slices alone": Wrong(
        _elastic(slices=3, minSlices=2, trainer={**TRAINER, "batchSize": 27}, accelerator="cpu:3x3"),
        "spec.minSlices: the rows of a batch (spec.trainer.batchSize) do not divide over the devices of 2 slices; 1 would do",
        later=ARITHMETIC,
    ),
    "too many": Wrong(
        manifest(slices=257),
        "spec.slices: 257 is too large; at most 256",
        api="spec.slices: Invalid value: 257: spec.slices in body should be less than or equal to 256",
    ),
    "two things at once": Wrong(
        manifest(slices=0, queue="A!"),
        "spec.slices: 0 is too small; at least 1",
        'spec.queue: "A!" is not a name in Kubernetes; allowed: lower-case letters, digits and -, beginning and ending with a letter or digit, and dots within',
        api="spec.queue",
    ),
    "slices and workers again": Wrong(
        manifest(slices=2, workers=2, accelerator="cpu:1x1"),
        "spec.workers: excludes slices, which train together; workers are independent: keep one of them",
    ),
    "workers of several hosts": Wrong(
        manifest(workers=2, accelerator="v6e-16"),
        "spec.workers: a worker is one host, and a slice of this accelerator has several; take one of one host, such as v5e-4, v6e-8 or cpu:1x4",
    ),
    "slices of one host": Wrong(
        manifest(slices=4, accelerator="v6e-4"),
        "spec.slices: GKE joins only slices of several hosts; ask for one larger slice, or for workers instead of slices if they need not talk",
    ),
    "workers of a slice that is asked for in halves": Wrong(
        manifest(accelerator="v6e-8", workers=2, nodeSelector={COUNT_LABEL: "4"}),
        "spec.workers: a worker is one host, and a slice of this accelerator has several; take one of one host, such as v5e-4, v6e-8 or cpu:1x4",
    ),
    "slices of v3": Wrong(
        manifest(accelerator="v3-32", slices=2),
        "spec.slices: v3 has no multislice, so slices of it cannot train together; ask for one larger slice",
    ),
    "slices of a machine of eight chips": Wrong(
        manifest(accelerator="v6e-8", slices=2, nodeSelector={COUNT_LABEL: "8"}),
        "spec.slices: GKE joins only slices of several hosts; ask for one larger slice, or for workers instead of slices if they need not talk",
    ),
    "an empty one": Wrong(
        _spec(accelerator=""),
        'spec.accelerator: "" is empty',
        api="spec.accelerator",
    ),
    "an odd size": Wrong(
        _spec(accelerator="v5e-3"),
        'spec.accelerator: "v5e-3" would be 3 chips, and no v5e slice has that many; nearest: v5e-1 (1 chip on 1 host), v5e-4 (4 chips on 1 host)',
        api="spec.accelerator",
    ),
    "a size too large": Wrong(
        _spec(accelerator="v6e-512"),
        'spec.accelerator: "v6e-512" would be 512 chips, and no v6e slice has that many; nearest: v6e-256 (256 chips on 64 hosts)',
        api="spec.accelerator",
    ),
    "a shape that is not sold": Wrong(
        _spec(accelerator="v5e:3x3"),
        'spec.accelerator: "v5e:3x3" is no v5e shape; shapes: 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16',
        api='spec.accelerator: Invalid value: "v5e:3x3": no v5e shape; shapes: 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16',
    ),
    "three dimensions for two": Wrong(
        _spec(accelerator="v5e:4x4x4"),
        'spec.accelerator: "v5e:4x4x4" has 3 dimensions, and v5e slices are AxB chips; nearest: v5e:4x8 (32 chips on 8 hosts), v5e:8x8 (64 chips on 16 hosts)',
        api="spec.accelerator",
    ),
    "two dimensions for three": Wrong(
        _spec(accelerator="v5p:4x4"),
        'spec.accelerator: "v5p:4x4" has 2 dimensions, and v5p slices are AxBxC chips; nearest: v5p:2x2x2 (8 chips on 2 hosts), v5p:2x2x4 (16 chips on 4 hosts)',
        api="spec.accelerator",
    ),
    "hosts without devices": Wrong(
        _spec(accelerator="cpu:2"),
        'spec.accelerator: "cpu:2" is not cpu:HOSTSxDEVICES, as in cpu:2x4 for 2 hosts of 4 CPU devices',
        api="spec.accelerator",
    ),
    "no hosts": Wrong(
        _spec(accelerator="cpu:0x4"),
        'spec.accelerator: "cpu:0x4" is not cpu:HOSTSxDEVICES, as in cpu:2x4 for 2 hosts of 4 CPU devices',
        api="spec.accelerator",
    ),
    "no devices": Wrong(
        _spec(accelerator="cpu:2x0"),
        'spec.accelerator: "cpu:2x0" is not cpu:HOSTSxDEVICES, as in cpu:2x4 for 2 hosts of 4 CPU devices',
        api="spec.accelerator",
    ),
    "an old generation": Wrong(
        _spec(accelerator="v2-8"),
        'spec.accelerator: "v2-8": v2 has no GKE node pools and is not supported',
        api="spec.accelerator",
    ),
    "a space": Wrong(
        _spec(accelerator="v5e 16"),
        'spec.accelerator: "v5e 16" is not an accelerator; for tpu-v5-lite-podslice write v5e-16 or v5e:4x4',
        api="spec.accelerator",
    ),
    "an accelerator as a number": Wrong(
        _spec(accelerator=16),
        "spec.accelerator: 16 is not a string; put it in quotes",
        api='spec.accelerator: Invalid value: "integer": spec.accelerator in body must be of type string: "integer"',
    ),
    "an accelerator as a list": Wrong(
        _spec(accelerator=["v5e-16"]),
        'spec.accelerator: ["v5e-16"] is not a string; put it in quotes',
        api='spec.accelerator: Invalid value: "array": spec.accelerator in body must be of type string: "array"',
    ),
    "negative slices": Wrong(
        _spec(slices=-1),
        "spec.slices: -1 is too small; at least 1",
        api="spec.slices: Invalid value: -1: spec.slices in body should be greater than or equal to 1",
    ),
    "too many slices": Wrong(
        _spec(slices=300),
        "spec.slices: 300 is too large; at most 256",
        api="spec.slices: Invalid value: 300: spec.slices in body should be less than or equal to 256",
    ),
    "half a slice": Wrong(
        _spec(slices=1.5),
        "spec.slices: 1.5 is not a whole number",
        api='spec.slices: Invalid value: "number": spec.slices in body must be of type integer: "number"',
    ),
    "slices true": Wrong(
        _spec(slices=True),
        "spec.slices: true is not a whole number",
        api='spec.slices: Invalid value: "boolean": spec.slices in body must be of type integer: "boolean"',
    ),
    "no workers": Wrong(
        _image(accelerator="cpu:1x1", workers=0),
        "spec.workers: 0 is too small; at least 1",
        api="spec.workers: Invalid value: 0: spec.workers in body should be greater than or equal to 1",
    ),
    "too many workers": Wrong(
        _image(accelerator="cpu:1x1", workers=5000),
        "spec.workers: 5000 is too large; at most 4096",
        api="spec.workers: Invalid value: 5000: spec.workers in body should be less than or equal to 4096",
    ),
}
