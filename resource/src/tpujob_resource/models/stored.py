"""What the API server has stored, read as far as it can be: no decision waits for a valid spec or status.

`load.load_job` says what is wrong with a spec; here a value that cannot be read counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from tpujob_resource.errors import InvalidField
from tpujob_resource.models.manager import other_manager
from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import Status
from tpujob_resource.topology.parse import COUNT_LABEL, parse_accelerator


class StoredSpec(Spec):
    """`spec` as it is stored, valid or not; the defaults are those of `Spec`."""

    accelerator: str = ""
    """As it was written; empty when there is none."""

    @property
    def chips_per_host(self) -> int:
        """TPU chips of each host; 0 for `cpu` and for a name that stands for nothing."""
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
    """The whole object; its status is what has been recorded so far."""

    @cached_property
    def status(self) -> Status:
        """The recorded status, as far as it can be read; empty at first."""
        return read_status(self.manifest.get("status"))

    @cached_property
    def spec(self) -> StoredSpec:
        """As the person wrote it, valid or not: what cannot be read is as if it was not given."""
        return read_spec(self.manifest.get("spec"))

    @property
    def namespace(self) -> str:
        """That it is in."""
        namespace: str = self.manifest["metadata"]["namespace"]
        return namespace

    @property
    def name(self) -> str:
        """Unique in its namespace."""
        name: str = self.manifest["metadata"]["name"]
        return name

    @property
    def uid(self) -> str:
        """Of this object; another one of the same name has another."""
        uid: str = self.manifest["metadata"]["uid"]
        return uid

    def owner(self, label: str) -> str:
        """The value of this label of the object; empty without it."""
        return str((self.manifest["metadata"].get("labels") or {}).get(label) or "")

    @property
    def other_manager(self) -> str | None:
        """The controller that runs it, where that is not this operator."""
        return other_manager(self.spec.managed_by)

    @property
    def generation(self) -> int:
        """Counts changes of the spec."""
        generation: int = self.manifest["metadata"]["generation"]
        return generation


def read_spec(stored: object) -> StoredSpec:
    """The spec, with a default in the place of every value that no spec may have."""
    return _read(StoredSpec, stored)


def read_status(stored: object) -> Status:
    """The status, without the values that no status has; fields that are not known here are kept as they are."""
    return _read(Status, stored)


def _read[Model: BaseModel](model: type[Model], stored: object) -> Model:
    """What can be read of a decoded JSON value, with a model that has a default for every field."""
    if not isinstance(stored, Mapping):
        return model()
    readable: Any = stored
    while True:
        try:
            return model.model_validate(readable)
        except ValidationError as error:
            # Each round leaves out at least one value, so this ends.
            readable = deepcopy(dict(readable))
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            # From the back, so that the positions of what is still to go stay as they are.
            for path in sorted({_culprit(readable, problem["loc"]) for problem in problems}, reverse=True):
                _delete(readable, path)


def _culprit(value: Any, path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """What a path leads to; where something is missing there, or is no plain value, what should have it."""
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
