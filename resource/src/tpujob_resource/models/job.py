"""A TpuTrainingJob with typed, individually well-formed fields; `load.load_job` checks it as a whole."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import Status
from tpujob_resource.topology.parse import COUNT_LABEL, Accelerator, parse_accelerator


class Metadata(BaseModel):
    """The fields of `metadata` that we read."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, frozen=True)

    name: Annotated[str, Field(min_length=1)]
    namespace: str = "default"
    uid: str | None = None
    """None: the job is not in a cluster."""
    generation: int | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class TpuTrainingJob(BaseModel):
    """A job as it was written, checked as a whole by `load_job`."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    api_version: Literal["tpujob.dev/v1beta1"]
    kind: Literal["TpuTrainingJob"]
    metadata: Metadata
    spec: Spec
    status: Status = Status()

    @cached_property
    def accelerator(self) -> Accelerator:
        """The slice that `spec.accelerator` describes; raises InvalidField for a job that `load_job` would refuse."""
        wanted = (self.spec.node_selector or {}).get(COUNT_LABEL)
        count = int(wanted) if wanted is not None and wanted.isdecimal() else None
        return parse_accelerator(self.spec.accelerator, chips_per_host=count, slices=self.slices)

    @property
    def slices(self) -> int:
        """Number of slices, 1 by default; also 1 for independent workers."""
        return self.spec.slices or 1

    def with_slices(self, slices: int) -> TpuTrainingJob:
        """The same job with another number of slices."""
        machine = self.accelerator.node_selector.get(COUNT_LABEL)
        # Otherwise one slice of 2x4 chips would get another machine type than each of several.
        chosen = {} if machine is None else {COUNT_LABEL: machine}
        selector = {**(self.spec.node_selector or {}), **chosen} or None
        spec = self.spec.model_copy(update={"slices": slices, "node_selector": selector})
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return TpuTrainingJob.model_validate({**fields, "spec": spec}, by_name=True)

    @property
    def hosts(self) -> int:
        """Number of pods: hosts of all slices, or workers."""
        return self.spec.workers or self.slices * self.accelerator.hosts_per_slice
