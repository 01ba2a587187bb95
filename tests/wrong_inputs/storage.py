# ruff: noqa: E501 - a table
"""Wrong jobs: where checkpoints and code are."""

from typing import Any

from tests.operator.manifests import manifest
from tests.wrong_inputs.row import Job, Wrong

EXTRACTION = {
    "task": "extract",
    "model": {"preset": "tiny"},
    "data": {"path": "gs://bucket/data", "tokenizer": "bytes"},
    "extract": {"layers": ["1"]},
}

SMALL: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "data/*.parquet"}, "steps": 10}


def _spec(**fields: Any) -> Job:
    return manifest("job", **{"accelerator": "cpu:2x1", "trainer": SMALL, **fields})


ROWS: dict[str, Wrong] = {
    "checkpoints in a bucket for data": Wrong(
        manifest(checkpointDir="az://container/llama"),
        'spec.checkpointDir: "az://container/llama" is in Azure Blob Storage, which holds data, but TensorStore cannot write arrays there; write gs://BUCKET/PATH, or mount it as a volume that all hosts share, and write its path',
    ),
    "checkpoints on no volume": Wrong(
        manifest(accelerator="v5e-16", checkpointDir="/mnt/ckpt"),
        'spec.checkpointDir: "/mnt/ckpt" is on no volume, and would be lost with the pod; take gs://BUCKET/PATH, or a persistentVolumeClaim or gcs volume mounted there (spec.volumes)',
    ),
    "code on no volume": Wrong(
        manifest(accelerator="v5e-16", code={"archive": "/share/code.tar.gz", "sha256": "0" * 64}),
        'spec.code.archive: "/share/code.tar.gz" is on no volume of the job; take gs://BUCKET/PATH, or mount the volume that holds it (spec.volumes)',
    ),
    "code without a digest": Wrong(
        manifest(code={"archive": "gs://bucket/code.tar.gz"}),
        "spec.code.sha256: an archive needs its sha256, and a repository has none: its commit is the digest",
    ),
    "code of half a digest": Wrong(
        manifest(code={"archive": "gs://bucket/code.tar.gz", "sha256": "0" * 32}),
        'spec.code.sha256: "00000000000000000000000000000000" is not a SHA-256 digest; it has 64 hexadecimal digits in lower case',
        api="spec.code.sha256",
    ),
    "code of nowhere": Wrong(
        manifest(code={"commit": "0" * 40}),
        "spec.code: give either archive and sha256, or repository and commit",
    ),
    "code of two places": Wrong(
        manifest(
            code={"archive": "gs://bucket/code.tar.gz", "sha256": "0" * 64, "repository": "https://git.example/a"}
        ),
        "spec.code: give either archive and sha256, or repository and commit",
    ),
    "packages of nowhere": Wrong(
        manifest(packages={}),
        "spec.packages: names nothing; give requirements, a file with a --hash of every package, or wheels, a folder of them",
    ),
    "wheels that hosts may have others of": Wrong(
        manifest(packages={"wheels": "/share/wheels"}),
        'spec.packages.wheels: "/share/wheels" are outside of the code, where hosts may have others; give requirements with a --hash of each, too',
    ),
    "an option for pip": Wrong(
        manifest(packages={"requirements": "--index-url=http://x"}),
        'spec.packages.requirements: "--index-url=http://x" is not a path such as requirements.txt; allowed: letters, digits, -, _, ., + and /',
        api="spec.packages.requirements",
    ),
    "code of a branch": Wrong(
        manifest(code={"repository": "https://git.example/a", "commit": "main"}),
        'spec.code.commit: "main" is not a commit; write its 40 hexadecimal digits, no branch or tag',
        api="spec.code.commit",
    ),
    "code of a repository": Wrong(
        manifest(code={"repository": "https://git.example/a"}),
        "spec.code.commit: a repository needs the whole commit, 40 hexadecimal digits as `git rev-parse` prints them",
    ),
    "code of a commit with changes": Wrong(
        manifest(code={"repository": "https://git.example/a", "commit": "0" * 40 + "+changes"}),
        "spec.code.commit: a repository needs the whole commit, 40 hexadecimal digits as `git rev-parse` prints them",
    ),
    "code of a commit and a digest": Wrong(
        manifest(code={"repository": "https://git.example/a", "commit": "0" * 40, "sha256": "0" * 64}),
        "spec.code.sha256: an archive needs its sha256, and a repository has none: its commit is the digest",
    ),
    "code of a password": Wrong(
        manifest(code={"repository": "https://me:secret@git.example/a", "commit": "0" * 40}),
        'spec.code.repository: "https://…@git.example/a" is neither https://HOST/PATH, without a user and a query, nor file:///PATH on one of the job\'s volumes',
        api="spec.code.repository",
    ),
    "code without encryption": Wrong(
        manifest(code={"repository": "http://git.example/a", "commit": "0" * 40}),
        'spec.code.repository: "http://git.example/a" is neither https://HOST/PATH, without a user and a query, nor file:///PATH on one of the job\'s volumes',
        api="spec.code.repository",
    ),
    "code of a repository on no volume": Wrong(
        manifest(accelerator="v5e-16", code={"repository": "file:///share/project", "commit": "0" * 40}),
        'spec.code.repository: "file:///share/project" is on no volume of the job; take https://HOST/PATH, or mount the volume that holds it (spec.volumes)',
    ),
    "code from elsewhere": Wrong(
        manifest(code={"archive": "https://example.com/code.tar.gz", "sha256": "0" * 64}),
        'spec.code.archive: "https://example.com/code.tar.gz" is neither gs://BUCKET/PATH nor an absolute path',
        api="spec.code.archive",
    ),
    "another cloud": Wrong(
        manifest(checkpointDir="s3://b/x"),
        'spec.checkpointDir: "s3://b/x" is neither gs://BUCKET/PATH nor an absolute path; write one of them',
    ),
    "a bucket in capitals": Wrong(
        manifest(checkpointDir="gs://My-Bucket/x"),
        'spec.checkpointDir: "gs://My-Bucket/x" names no bucket; a bucket\'s name has 3 to 222 characters, lower-case letters, digits, -, _ and ., and starts and ends with a letter or digit',
    ),
    "a directory above": Wrong(
        manifest(checkpointDir="gs://bucket/a/../b"),
        'spec.checkpointDir: "gs://bucket/a/../b" contains ..; write the directory that is meant',
    ),
    "an absolute directory above": Wrong(
        manifest(checkpointDir="/mnt/.."),
        'spec.checkpointDir: "/mnt/.." contains ..; write the directory that is meant',
    ),
    "a pattern in a bucket": Wrong(
        manifest(checkpointDir="gs://bucket/run[1]"),
        'spec.checkpointDir: "gs://bucket/run[1]" has *, ?, [ or ], which libraries for buckets take for a pattern; leave them out',
    ),
    "a relative path": Wrong(
        manifest(checkpointDir="here"),
        'spec.checkpointDir: "here" is neither gs://BUCKET/PATH nor an absolute path; write one of them',
    ),
    "an extraction without a directory": Wrong(
        manifest(accelerator="v5e-4", workers=2, trainer=EXTRACTION),
        "spec.checkpointDir: required for tasks of workers, which write their files there; give gs://BUCKET/PATH",
    ),
    "checkpoints on a volume of the pod": Wrong(
        manifest(
            accelerator="v5e-16",
            checkpointDir="/scratch/a",
            volumes=[{"name": "a", "mountPath": "/scratch", "emptyDir": {}}],
        ),
        'spec.checkpointDir: "/scratch/a" is on a volume that does not outlive the pod; take gs://BUCKET/PATH, or a persistentVolumeClaim or gcs volume',
    ),
    "checkpoints on a volume that is read": Wrong(
        manifest(
            accelerator="v5e-16",
            checkpointDir="/b/a",
            volumes=[{"name": "a", "mountPath": "/b", "readOnly": True, "gcs": {"bucket": "bucket"}}],
        ),
        'spec.checkpointDir: "/b/a" is on a volume that is readOnly; drop readOnly',
    ),
    "code above a folder": Wrong(
        manifest(code={"archive": "/share/../code.tar.gz", "sha256": "0" * 64}),
        'spec.code.archive: "/share/../code.tar.gz" contains ..; write the path that is meant',
    ),
    "a repository above a folder": Wrong(
        manifest(code={"repository": "file:///share/../project", "commit": "0" * 40}),
        'spec.code.repository: "file:///share/../project" contains ..; write the path that is meant',
    ),
    "a directory with a space": Wrong(
        manifest(checkpointDir="gs://my-bucket/my run"),
        'spec.checkpointDir: "gs://my-bucket/my run" has spaces; leave them out',
    ),
    "a relative directory": Wrong(
        _spec(checkpointDir="checkpoints"),
        'spec.checkpointDir: "checkpoints" is neither gs://BUCKET/PATH nor an absolute path; write one of them',
    ),
    "another cloud again": Wrong(
        _spec(checkpointDir="s3://bucket/x"),
        'spec.checkpointDir: "s3://bucket/x" is neither gs://BUCKET/PATH nor an absolute path; write one of them',
    ),
    "no bucket": Wrong(
        _spec(checkpointDir="gs:///x"),
        'spec.checkpointDir: "gs:///x" names no bucket; a bucket\'s name has 3 to 222 characters, lower-case letters, digits, -, _ and ., and starts and ends with a letter or digit',
    ),
    "an empty directory": Wrong(
        _spec(checkpointDir=""),
        'spec.checkpointDir: "" is empty',
        api="spec.checkpointDir",
    ),
    "a directory as a number": Wrong(
        _spec(checkpointDir=7),
        "spec.checkpointDir: 7 is not a string; put it in quotes",
        api='spec.checkpointDir: Invalid value: "integer": spec.checkpointDir in body must be of type string: "integer"',
    ),
}
