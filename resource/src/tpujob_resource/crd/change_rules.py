"""What the API server refuses of a change: fields of a job that runs or of any, and a number that is lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tpujob_resource.crd.cel import Rule, rule, texts
from tpujob_resource.models.changes import Change, changes
from tpujob_resource.models.shared_units import UNIT_TASKS
from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import EDITABLE_PHASES


def root_rules() -> list[Rule]:
    """For the whole object: what cannot change while a job runs."""
    return [_CEL[change](field) for field, change in changes(Spec).items() if change in _CEL]


def _is_elastic() -> str:
    """Workers that share units through the bucket may come and go, as in `shared_units.is_elastic`."""
    return (
        "oldSelf.status.phase != 'Succeeded' && has(self.spec.workers) && has(oldSelf.spec.workers) "
        "&& !has(self.spec.queue) && has(self.spec.trainer) && has(self.spec.trainer.task) "
        f"&& self.spec.trainer.task in {texts(list(UNIT_TASKS))}"
    )


def _raised_rule(field: str) -> Rule:
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return rule(
        f"!has({before}) || (has({now}) && {now} >= {before})",
        "is a number to raise: it cannot become smaller",
        field=f".spec.{field}",
    )


def _unchanged(field: str) -> str:
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"


def _constant_rule(field: str) -> Rule:
    return rule(
        _unchanged(field),
        "cannot change after the job is created; delete it, and create another one",
        field=f".spec.{field}",
    )


def _frozen_rule(field: str, *, unless: str | None = None) -> Rule:
    phases = texts([str(phase) for phase in EDITABLE_PHASES])
    return rule(
        "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
        f"oldSelf.status.phase in {phases} || "
        f"({_unchanged(field)})" + (f" || ({unless})" if unless else ""),
        f"cannot change in phases other than {', '.join(EDITABLE_PHASES)}",
        expression=(
            "oldSelf.status.phase == 'Succeeded' ? 'the job has succeeded and stays as it was; create another one' : "
            "'cannot change while the job is ' + oldSelf.status.phase + "
            "'; set suspend: true, wait for phase Suspended, and change it then'"
        ),
        field=f".spec.{field}",
    )


_CEL: Mapping[Change, Callable[[str], Rule]] = {
    Change.NEVER: _constant_rule,
    Change.STOPPED: _frozen_rule,
    Change.ELASTIC: lambda field: _frozen_rule(field, unless=_is_elastic()),
    Change.RAISED: _raised_rule,
}
