"""Reads stored jobs leniently, so that decisions do not depend on a valid spec or status.

`load.load_job` reports errors in a spec; here an invalid value counts as absent.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from tpujob_resource.models.job import other_manager
from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import Status
from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.parse import COUNT_LABEL, parse_accelerator


class StoredSpec(Spec):
    """`spec` as it is stored, valid or not; the defaults are those of `Spec`."""

    accelerator: str = ""
    """The name as written; empty if there is none."""

    @property
    def chips_per_host(self) -> int:
        """TPU chips of each host; 0 for `cpu` and for an invalid name."""
        wanted = (self.node_selector or {}).get(COUNT_LABEL, "")
        try:
            accelerator = parse_accelerator(
                self.accelerator,
                chips_per_host=int(wanted) if wanted.isdecimal() else None,
                slices=self.slices or 1,
            )
        except InvalidField:
            return 0
        return accelerator.chips_per_host if accelerator.is_tpu else 0

    @property
    def is_spot(self) -> bool:
        """Whether it runs on spot machines."""
        return bool(self.capacity and self.capacity.spot)


@dataclass(frozen=True, kw_only=True)
class StoredJob:
    """A TpuTrainingJob as it was read, valid or not."""

    manifest: Mapping[str, Any]
    """The whole object, with its recorded status."""

    @cached_property
    def status(self) -> Status:
        """The recorded status without invalid values; empty at first."""
        return read_status(self.manifest.get("status"))

    @cached_property
    def spec(self) -> StoredSpec:
        """The spec as the user wrote it, valid or not: an invalid value counts as absent."""
        return read_spec(self.manifest.get("spec"))

    @property
    def namespace(self) -> str:
        """Its namespace."""
        namespace: str = self.manifest["metadata"]["namespace"]
        return namespace

    @property
    def name(self) -> str:
        """Its name, unique in the namespace."""
        name: str = self.manifest["metadata"]["name"]
        return name

    @property
    def uid(self) -> str:
        """Its UID; another object with the same name has another UID."""
        uid: str = self.manifest["metadata"]["uid"]
        return uid

    def owner(self, label: str) -> str:
        """The value of this label of the object; empty if it is missing."""
        return str((self.manifest["metadata"].get("labels") or {}).get(label) or "")

    @property
    def other_manager(self) -> str | None:
        """The controller that runs the job; None: this operator does."""
        return other_manager(self.spec.managed_by)

    @property
    def generation(self) -> int:
        """The number of changes of the spec, from 1."""
        generation: int = self.manifest["metadata"]["generation"]
        return generation


def read_spec(stored: object) -> StoredSpec:
    """The spec, with defaults instead of invalid values."""
    return _read(StoredSpec, stored)


def read_status(stored: object) -> Status:
    """The status without invalid values; unknown fields are kept."""
    return _read(Status, stored)


def _read[Model: BaseModel](model: type[Model], stored: object) -> Model:
    """The valid parts of a decoded JSON value, with a model that has a default for every field."""
    if not isinstance(stored, Mapping):
        return model()
    readable: Any = stored
    while True:
        try:
            return model.model_validate(readable)
        except ValidationError as error:
            # Each round removes at least one value, so this terminates.
            readable = deepcopy(dict(readable))
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            # From the end, so that the positions of values that are still to be deleted do not change.
            for path in sorted({_culprit(readable, problem["loc"]) for problem in problems}, reverse=True):
                _delete(readable, path)


def _culprit(value: Any, path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path of the value to delete; if the path does not exist, its longest part that exists."""
    for depth, key in enumerate(path):
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return path[:depth]
    return path


def _delete(value: Any, path: tuple[int | str, ...]) -> None:
    for key in path[:-1]:
        value = value[key]
    del value[path[-1]]
