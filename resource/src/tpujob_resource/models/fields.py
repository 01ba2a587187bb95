"""The base class of all parts of a resource, types of values that occur more than once, and when a field may change."""

from enum import StrEnum
from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from tpujob_contract import quantity
from tpujob_contract.storage_address import BUCKET_NAME, CHECKPOINT_BUCKET

ObjectName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
]
"""Name of another Kubernetes object in the same namespace."""

LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
LabelKey = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=317, pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
    ),
]
DataKey = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
"""Key within a Secret or a ConfigMap."""

QUANTITY_PATTERN = quantity.PATTERN
QueueName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Quantity = Annotated[
    Annotated[str, StringConstraints(max_length=32, pattern=QUANTITY_PATTERN)] | Annotated[int, Field(ge=0)],
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "maxLength": 32, "pattern": QUANTITY_PATTERN}),
]
"""Amount of a Kubernetes resource, such as 8, "500m" or "64Gi"."""


NO_NUL_PATTERN = r"^[^\x00]*$"
MANAGER_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/._~%!$&'()*+,;=:-]+$"
"""A domain and a path (k8s.io/apimachinery:pkg/util/validation/validation.go, IsDomainPrefixedPath)."""
FILE = "file://"
CODE_REPOSITORY_PATTERN = r"^(https://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/[^\s@?#]+|file:///[^\s?#%]+)$"
CODE_ARCHIVE_PATTERN = rf"^({CHECKPOINT_BUCKET}://{BUCKET_NAME}/|/)\S+$"
PACKAGES_PATTERN = r"^/?[A-Za-z0-9_.][-A-Za-z0-9_./+]*$"
IMAGE_PATTERN = (
    r"^([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]+)?/)?"
    r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha256:[a-f0-9]{64})?$"
)
"""Registry, path, tag and digest of an image (distribution/reference:regexp.go)."""


class Part(BaseModel):
    """A part of the specification: camelCase outside, snake_case here; unknown keys and wrong types are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
    )


class Change(StrEnum):
    """When a field may change."""

    NEVER = "never"
    """Not after the job is created."""
    STOPPED = "stopped"
    """While no JobSet of the job runs; a change creates a new one. This is the default."""
    RUNNING = "running"
    """At any time, without a new JobSet."""
    RAISED = "raised"
    """At any time, but only to a larger number."""
    ELASTIC = "elastic"
    """At any time for independent workers that share units and have no queue; otherwise as `STOPPED`."""


@cache
def changes(model: type[BaseModel]) -> dict[str, Change]:
    """When each field of a spec may change, by its name in manifests."""
    return {
        field.alias or name: next((note for note in field.metadata if isinstance(note, Change)), Change.STOPPED)
        for name, field in model.model_fields.items()
    }


def changing_in_place(model: type[BaseModel], *, is_elastic: bool) -> frozenset[str]:
    """The fields whose change does not create a new JobSet."""
    kinds = {Change.RUNNING, Change.RAISED, *([Change.ELASTIC] if is_elastic else [])}
    return frozenset(name for name, change in changes(model).items() if change in kinds)
