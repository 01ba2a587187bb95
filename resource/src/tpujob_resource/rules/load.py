"""The custom resource: the only place where a manifest becomes a job."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tpujob_resource.messages.error_messages import describe_problems
from tpujob_resource.models import decoding
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.limits import broken_limits
from tpujob_resource.rules.validation import broken_rules
from tpujob_resource.topology.errors import InvalidJob


def load_job(
    manifest: Mapping[str, Any], settings: JobSettings | None = None, *, has_pods: bool = True
) -> TpuTrainingJob:
    """The job that a manifest describes.

    Args:
        manifest: A manifest from YAML, or from the API server.
        settings: The installation whose limits apply; None: outside a cluster.
        has_pods: Whether pods run it; otherwise no volume is needed for local disks.

    Raises:
        InvalidJob: The job is invalid; it has all problems, one line each.
    """
    spec = manifest.get("spec")
    # First: what follows the levels of a value ends at some depth.
    deep = tuple(decoding.depth_problems("spec", spec)) if isinstance(spec, Mapping) else ()
    if unreadable := tuple(manifest.get(decoding.UNREADABLE, deep)):
        raise InvalidJob(unreadable)
    try:
        job = TpuTrainingJob.model_validate(dict(manifest))
    except ValidationError as error:
        raise InvalidJob(describe_problems(error, TpuTrainingJob)) from error
    problems = broken_rules(job, has_pods=has_pods) + (broken_limits(job, settings) if settings is not None else ())
    if problems:
        raise InvalidJob(problems)
    return job


def without_status(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without its status, which may be of another version of the operator and is not validated."""
    return {key: value for key, value in manifest.items() if key != "status"}
