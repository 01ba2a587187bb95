"""Rules for what runs in a pod: image, arguments, environment, storage, amounts. Each yields sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from tpujob_contract import storage_address
from tpujob_contract.environment import RESERVED_PREFIXES
from tpujob_contract.storage_address import BUCKET_NAME, CHECKPOINT_BUCKET
from tpujob_resource.messages.error_messages import shown
from tpujob_resource.models.fields import QUANTITY_PATTERN
from tpujob_resource.models.job import TpuTrainingJob

CHECKPOINT_DIR_PATTERN = rf"^({CHECKPOINT_BUCKET}://{BUCKET_NAME}(/\S*)?|/\S*)$"
BUCKET_PATTERN = rf"^{CHECKPOINT_BUCKET}://{BUCKET_NAME}(/|$)"
BUCKET_ADDRESS_PATTERN = (
    r"^https?://(?:storage\.(?:googleapis|cloud\.google)\.com/|console\.cloud\.google\.com/storage/browser/)"
    r"([^/?#;]+)(/[^?#;]*)?|^https?://([^/?#;]+)\.storage\.googleapis\.com(/[^?#;]*)?"
)
"""Addresses of a bucket: of the XML API, by path and by host, and of the console
(docs.cloud.google.com/storage/docs/request-endpoints)."""
PARENT_PATTERN = r"(^|/)\.\.(/|$)"
"""A path that leaves the folder it starts in."""
CONFIDENTIAL_PATTERN = r"^(.*_)?(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS)$"
"""Variables whose value must not stand in a manifest."""
CPU_DEVICE_VARIABLES = ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES")
OWNED_KEY_PATTERN = r"^[a-z0-9.-]*(kubernetes\.io|k8s\.io|tpujob\.dev)/"
"""Keys of labels and annotations that somebody else writes and reads."""
_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTP")},
    **{f"{unit}i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTP")},
}

type Problems = Iterator[str]


def environment(job: TpuTrainingJob) -> Problems:
    """Variables: none of the wiring's, none twice, no secrets in the open."""
    seen: set[str] = set()
    for i, variable in enumerate(job.spec.env or ()):
        path = f"spec.env[{i}]"
        if variable.name.startswith(RESERVED_PREFIXES):
            yield f"{path}.name: {variable.name} belongs to the operator, which sets what is right for each process"
        if job.spec.accelerator.startswith("cpu:") and variable.name in CPU_DEVICE_VARIABLES:
            yield f"{path}.name: {variable.name} is set by accelerator {job.spec.accelerator}; leave it out"
        if variable.name in seen:
            yield f"{path}.name: {variable.name} is there twice; keep one"
        seen.add(variable.name)
        source = variable.value_from
        if variable.value is not None and source is not None:
            yield f"{path}: {variable.name} has both value and valueFrom; keep one"
        if source is not None and (source.secret_key_ref is None) == (source.config_map_key_ref is None):
            yield f"{path}.valueFrom: give one of secretKeyRef and configMapKeyRef"
        if variable.value and re.fullmatch(CONFIDENTIAL_PATTERN, variable.name):
            yield f"{path}.value: {variable.name} does not belong in a manifest; use valueFrom.secretKeyRef"


def storage(job: TpuTrainingJob) -> Problems:
    """The checkpoint directory: a bucket or an absolute path, and nothing that leads out of it."""
    directory = job.spec.checkpoint_dir
    if directory is None:
        return
    if storage_address.is_bucket(directory) and not re.match(BUCKET_PATTERN, directory):
        yield (
            f"spec.checkpointDir: {shown(directory)} names no bucket; a bucket's name has 3 to 222 characters, "
            "lower-case letters, digits, -, _ and ., and starts and ends with a letter or digit"
        )
    elif not re.fullmatch(CHECKPOINT_DIR_PATTERN, directory):
        yield (
            f"spec.checkpointDir: {shown(directory)} is neither gs://BUCKET/PATH nor an absolute path; "
            f"write {_directory_meant(directory)}"
        )
    if re.search(PARENT_PATTERN, directory):
        yield f"spec.checkpointDir: {shown(directory)} contains ..; write the directory that is meant"


def _directory_meant(given: str) -> str:
    """What to write for a directory that is none: the bucket of an address that a browser shows, else the form."""
    address = re.match(BUCKET_ADDRESS_PATTERN, given)
    if address:
        meant = f"gs://{address[1] or address[3]}{address[2] or address[4] or ''}"
        if re.fullmatch(CHECKPOINT_DIR_PATTERN, meant):
            return meant
    if re.search(r"\s", given):
        return "it without spaces"
    backend = storage_address.BACKENDS.get(storage_address.scheme_of(given))
    if backend is not None and backend.has_buckets and not backend.holds_checkpoints:
        return (
            f"gs://BUCKET/PATH: {backend.name} holds data, but TensorStore cannot write arrays there; or mount it as a "
            "volume that all hosts share, and write its path"
        )
    return "gs://BUCKET/PATH, or a path that begins with / on a volume that all hosts share"


def pod_metadata(job: TpuTrainingJob) -> Problems:
    """Labels and annotations of pods: none of Kubernetes', JobSet's, Kueue's or the operator's."""
    for field, given in (("podLabels", job.spec.pod_labels), ("podAnnotations", job.spec.pod_annotations)):
        for key in given or ():
            if re.search(OWNED_KEY_PATTERN, key):
                yield f'spec.{field}["{key}"]: belongs to Kubernetes, JobSet, Kueue or the operator; leave it out'


def amounts(job: TpuTrainingJob) -> Problems:
    """Processors, memory and disk: amounts that Kubernetes reads, and no request above its limit."""
    resources = job.spec.resources
    given: dict[str, dict[str, Decimal]] = {"requests": {}, "limits": {}}
    for kind, read in given.items():
        parts = getattr(resources, kind, None)
        for name, value in parts.model_dump(by_alias=True, exclude_none=True).items() if parts else ():
            amount = quantity(value)
            if amount is None:
                yield f'spec.resources.{kind}.{name}: {shown(value)} is not an amount such as 8, "500m" or "64Gi"'
            else:
                read[name] = amount
    for name, amount in given["requests"].items():
        if amount > given["limits"].get(name, amount):
            yield f"spec.resources.requests.{name}: is more than limits.{name}; lower it, or raise the limit"


def quantity(value: str | int) -> Decimal | None:
    """A Kubernetes quantity as a number, or None if it is none."""
    match = re.fullmatch(QUANTITY_PATTERN, str(value))
    if match is None:
        return None
    unit = match[2] or ""
    return Decimal(str(value).removesuffix(unit)) * _UNITS[unit]
