"""Finds all errors in a job whose fields are individually well-formed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob_contract.field_rules import ON_VOLUME, Broken, Rule, broken, places
from tpujob_resource.messages.error_messages import field_path, quoted
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.rules import computed
from tpujob_resource.rules.table import CHECKPOINT_DIR_PATTERN, RULES, TWICE, UNIQUE
from tpujob_resource.topology.errors import InvalidField

BUCKET_ADDRESS_PATTERN = (
    r"^https?://(?:storage\.(?:googleapis|cloud\.google)\.com/|console\.cloud\.google\.com/storage/browser/)"
    r"([^/?#;]+)(/[^?#;]*)?|^https?://([^/?#;]+)\.storage\.googleapis\.com(/[^?#;]*)?"
)
"""Web addresses of a bucket: of the XML API, by path and by host, and of the console
(docs.cloud.google.com/storage/docs/request-endpoints)."""


def broken_rules(job: TpuTrainingJob, *, has_pods: bool = True) -> tuple[str, ...]:
    """A line for each problem: the path of the field, its value if that helps, what is wrong and what to do.

    Args:
        job: A job whose fields are individually well-formed.
        has_pods: Whether pods run it. Without pods, rules about volumes do not apply to the machine's own disks.
    """
    document = as_written(job)
    rows = RULES if _has_accelerator(job) else [rule for rule in RULES if not _compares_accelerators(rule)]
    rows = rows if has_pods else [rule for rule in rows if not _is_about_volumes(rule)]
    return (
        *(_sentence(each) for each in broken(document, rows)),
        *_twice(document),
        *(problem for rule in computed.RULES for problem in rule.problems(job)),
    )


def volume_problems(job: TpuTrainingJob) -> tuple[str, ...]:
    """The problems that a job has only in pods: directories on no volume, or on one that is lost or read-only."""
    return tuple(_sentence(each) for each in broken(as_written(job), list(filter(_is_about_volumes, RULES))))


def as_written(job: TpuTrainingJob) -> dict[str, Any]:
    """The job without defaults and nulls, as in the API server's rules."""
    spec = job.spec.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
    return {"metadata": {"name": job.metadata.name}, "spec": spec}


def _has_accelerator(job: TpuTrainingJob) -> bool:
    try:
        return bool(job.accelerator)
    except InvalidField:
        return False


def _is_about_volumes(rule: Rule) -> bool:
    return any(condition.kind == ON_VOLUME for condition in rule.when)


def _compares_accelerators(rule: Rule) -> bool:
    return any(condition.path.endswith("accelerator") for condition in rule.when)


def _sentence(each: Broken) -> str:
    value = f"{quoted(each.value)} " if each.rule.shows and each.value is not None else ""
    return f"{field_path(each.path)}: {value}{each.rule.message}{_bucket_meant(each)}"


def _bucket_meant(each: Broken) -> str:
    """The end of a message: the gs:// address for a web address of a bucket in `checkpointDir`; else empty."""
    is_directory = each.path == ("spec", "checkpointDir") and isinstance(each.value, str)
    address = re.match(BUCKET_ADDRESS_PATTERN, each.value) if is_directory else None
    if address is None:
        return ""
    meant = f"gs://{address[1] or address[3]}{address[2] or address[4] or ''}"
    return f"; for this address write {meant}" if re.fullmatch(CHECKPOINT_DIR_PATTERN, meant) else ""


def _twice(document: Mapping[str, Any]) -> Iterator[str]:
    for at, field in UNIQUE:
        seen = set()
        for path, item in places(document, at):
            if item[field] in seen:
                yield f"{field_path((*path, field))}: {quoted(item[field])} {TWICE}"
            seen.add(item[field])
