"""What the API server refuses of a whole resource: its name, and what cannot change while a job runs."""

from __future__ import annotations

from tpujob_resource.crd.cel import Rule, rule, text, texts
from tpujob_resource.models.shared_units import UNIT_TASKS
from tpujob_resource.models.status import EDITABLE_PHASES
from tpujob_resource.rules.validation import MAX_NAME, NAME_PATTERN


def root_rules(frozen_fields: list[str]) -> list[Rule]:
    """For the whole object: its name, and what cannot change while a job runs."""
    return [
        rule(
            f"size(self.metadata.name) <= {MAX_NAME}",
            f"metadata.name has more than {MAX_NAME} characters; pods add theirs to it",
        ),
        rule(
            f"self.metadata.name.matches({text(NAME_PATTERN)})",
            "metadata.name begins with a lower-case letter and goes on with lower-case letters, digits and -",
        ),
        *(_frozen_rule(field, unless=_is_elastic() if field == "workers" else None) for field in frozen_fields),
        rule(
            "!has(oldSelf.spec.retry) || (has(self.spec.retry) && self.spec.retry >= oldSelf.spec.retry)",
            "is a number to raise: it cannot become smaller",
            field=".spec.retry",
        ),
    ]


def _is_elastic() -> str:
    """Workers that share units through the bucket may come and go, as in `shared_units.is_elastic`."""
    return (
        "oldSelf.status.phase != 'Succeeded' && has(self.spec.workers) && has(oldSelf.spec.workers) "
        "&& !has(self.spec.queue) && has(self.spec.trainer) && has(self.spec.trainer.task) "
        f"&& self.spec.trainer.task in {texts(list(UNIT_TASKS))}"
    )


def _frozen_rule(field: str, *, unless: str | None = None) -> Rule:
    phases = texts([str(phase) for phase in EDITABLE_PHASES])
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return rule(
        "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
        f"oldSelf.status.phase in {phases} || "
        f"(has({now}) == has({before}) && (!has({now}) || {now} == {before}))" + (f" || ({unless})" if unless else ""),
        f"cannot change in phases other than {', '.join(EDITABLE_PHASES)}",
        expression=(
            "oldSelf.status.phase == 'Succeeded' ? 'the job has succeeded and stays as it was; create another one' : "
            "'cannot change while the job is ' + oldSelf.status.phase + "
            "'; set suspend: true, wait for phase Suspended, and change it then'"
        ),
        field=f".spec.{field}",
    )
