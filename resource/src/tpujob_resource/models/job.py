"""A TpuTrainingJob with typed, individually well-formed fields; `load.load_job` checks it as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tpujob_contract import kubernetes_names
from tpujob_contract.corpus_tasks import CORPUS_TASKS
from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import Status
from tpujob_resource.topology.parse import COUNT_LABEL, Accelerator, parse_accelerator


class Metadata(BaseModel):
    """The fields of `metadata` that we read."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, frozen=True)

    name: Annotated[str, Field(min_length=1)]
    generate_name: str | None = None
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


def shares_units(spec: Spec) -> bool:
    """Whether the workers of a spec, valid or not, share a list of units.

    Each of them knows when all units are done.
    """
    return spec.workers is not None and spec.trainer is not None and spec.trainer.get("task") in CORPUS_TASKS


def is_elastic(spec: Spec) -> bool:
    """Whether `workers` of a spec, valid or not, may change in a running job.

    Workers of a command get their number at the start, and a queue has admitted a fixed number.
    """
    return shares_units(spec) and spec.queue is None


def other_manager(managed_by: str | None) -> str | None:
    """The controller that runs a job; None: this operator does.

    Args:
        managed_by: `spec.managedBy`; None: it is missing.
    """
    return managed_by if managed_by not in (None, "", kubernetes_names.OPERATOR) else None


def queue_priority_class(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The label of a job's WorkloadPriorityClass, for its JobSet; empty: it has none."""
    labels = metadata.get("labels") or {}
    return {key: value for key, value in labels.items() if key == kubernetes_names.KUEUE_PRIORITY_CLASS}


def prebuilt_workload(metadata: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The Workload that MultiKueue has copied to this cluster with a job, for the metadata of the job's JobSet.

    Args:
        metadata: Of the job; its Workload is named by a label up to Kueue 0.17, by an annotation since 0.18.

    Returns:
        `labels` and `annotations`, each with the name if it was there: Kueue reads it where it has written it.
    """
    name = kubernetes_names.KUEUE_PREBUILT_WORKLOAD
    given = {kind: metadata.get(kind) or {} for kind in ("labels", "annotations")}
    return {kind: {name: values[name]} if name in values else {} for kind, values in given.items()}
