"""LIBTPU_INIT_ARGS of a pod: recommended flags, the job's own, and the network interfaces between slices."""

from __future__ import annotations

from tpujob_resource.jobset.multislice_network import network_flag
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.topology.libtpu_flags import ENVIRONMENT_VARIABLE, Flag, merge_flags, recommended_flags


def compiler_flags(job: TpuTrainingJob) -> tuple[Flag, ...]:
    """The recommended flags of a job that uses the trainer or MaxText, or asks for them; none on CPUs."""
    spec = job.spec
    is_known_program = spec.trainer is not None or spec.framework == "maxtext"
    chosen = spec.libtpu_flags or ("recommended" if is_known_program else "none")
    if chosen == "none" or not job.accelerator.is_tpu:
        return ()
    return recommended_flags(job.accelerator.generation, job.slices)


def libtpu_arguments(job: TpuTrainingJob, settings: JobSettings) -> str | None:
    """The value of LIBTPU_INIT_ARGS; None: the operator adds nothing to the job's own.

    A flag that the job sets in `spec.env` keeps the job's value. A value from a Secret or ConfigMap is not known here,
    and is not changed.
    """
    own = next((each for each in job.spec.env or () if each.name == ENVIRONMENT_VARIABLE), None)
    if own is not None and own.value is None:
        return None
    flags, network = compiler_flags(job), network_flag(job, settings)
    if not flags and not network:
        return None
    return " ".join(filter(None, (merge_flags(flags, (own and own.value) or ""), network)))
