"""Statuses of jobs as tests write and read them: one dictionary, with the paths of fields in groups."""

from collections.abc import Mapping
from typing import Any

from tpujob_resource.models.status import GROUPS, Status

PATHS = {
    field.alias or name: f"{group}.{field.alias or name}"
    for group in GROUPS
    for name, field in type(Status().get(group)).model_fields.items()
}
"""The path of each field of a group by its name; no two groups have fields of the same name."""


def grouped(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A status as the API server has it, from paths such as `restarts.total`, or only `total`."""
    status: dict[str, Any] = {}
    for name, value in fields.items():
        group, _, inner = PATHS.get(name, name).rpartition(".")
        place = status.setdefault(group, {}) if group else status
        place[inner] = value
    return status


def flat(status: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a status by their paths."""
    found = {name: value for name, value in status.items() if name not in GROUPS}
    return found | {f"{group}.{name}": each for group in GROUPS for name, each in (status.get(group) or {}).items()}
