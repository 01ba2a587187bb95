"""What the API server refuses of a change: fields of a job that runs or of any, and a number that is lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tpujob_resource.crd.cel import Rule, rule, text, texts
from tpujob_resource.models.changes import Change, changes
from tpujob_resource.models.shared_units import UNIT_TASKS
from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import EDITABLE_PHASES


def root_rules() -> list[Rule]:
    """For the whole object: what cannot change while a job runs."""
    found = changes(Spec)
    single = [_CEL[change](field) for field, change in found.items() if change in _CEL]
    frozen = {field: _same(field) for field, change in found.items() if change is Change.STOPPED}
    elastic = {
        field: f"({_same(field)}) || ({_is_elastic()})" for field, change in found.items() if change is Change.ELASTIC
    }
    return [_frozen_rule({**frozen, **elastic}), *single]


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


def _same(field: str) -> str:
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return f"has({now}) ? has({before}) && {now} == {before} : !has({before})"


def _constant_rule(field: str) -> Rule:
    return rule(
        _same(field),
        "cannot change after the job is created; delete it, and create another one",
        field=f".spec.{field}",
    )


def _frozen_rule(fields: Mapping[str, str]) -> Rule:
    """One rule for all fields, though no path then names the field: the sentence does.

    Each write of a status evaluates every rule of the object. To look at a field, the API server copies the schemas of
    all fields beside it, and status has sixty; thirty rules that begin with its phase took milliseconds of each write.

    Args:
        fields: For each the condition that it has not changed, or may.
    """
    phases = texts([str(phase) for phase in EDITABLE_PHASES])
    is_editable = f"!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase in {phases}"
    # Concatenated: the API server takes a list of them to be too costly.
    named = " + ".join(f"(({condition}) ? '' : {text(f'spec.{field} ')})" for field, condition in fields.items())
    return rule(
        f"{is_editable} || ({' && '.join(f'({each})' for each in fields.values())})",
        f"cannot change in phases other than {', '.join(EDITABLE_PHASES)}",
        expression=(
            f"{named} + (oldSelf.status.phase == 'Succeeded' ? "
            "'cannot change: the job has succeeded and stays as it was; create another one' : "
            "'cannot change while the job is ' + oldSelf.status.phase + "
            "'; set suspend: true, wait for phase Suspended, and change it then')"
        ),
        field=".spec",
    )


_CEL: Mapping[Change, Callable[[str], Rule]] = {
    Change.NEVER: _constant_rule,
    Change.RAISED: _raised_rule,
}
