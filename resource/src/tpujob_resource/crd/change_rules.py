"""The API server's rules for edits (fields that are immutable, frozen in a running job, or raised) and for the size."""

from collections.abc import Callable, Mapping

from tpujob_contract.corpus_tasks import CORPUS_TASKS
from tpujob_resource.crd.cel import Rule, rule, text, texts
from tpujob_resource.models.decoding import MAX_SPEC_BYTES
from tpujob_resource.models.fields import Change, changes
from tpujob_resource.models.phases import EDITABLE_PHASES
from tpujob_resource.models.spec import Spec


def root_rules() -> list[Rule]:
    """Rules for the whole object about edits that are not allowed."""
    found = changes(Spec)
    single = [_CEL[change](field) for field, change in found.items() if change in _CEL]
    frozen = {field: _same(field) for field, change in found.items() if change is Change.STOPPED}
    elastic = {
        field: f"({_same(field)}) || ({_is_elastic()})" for field, change in found.items() if change is Change.ELASTIC
    }
    return [_frozen_rule({**frozen, **elastic}), *single]


def _is_elastic() -> str:
    """A CEL expression for `job.is_elastic`: the number of workers that share units may change."""
    return (
        "oldSelf.status.phase != 'Succeeded' && has(self.spec.workers) && has(oldSelf.spec.workers) "
        "&& !has(self.spec.queue) && has(self.spec.trainer) && has(self.spec.trainer.task) "
        f"&& self.spec.trainer.task in {texts(list(CORPUS_TASKS))}"
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
    """One rule for all fields; its message names the field, because its path cannot.

    Each write of a status evaluates all rules of the object. To read a field, the API server copies the schemas of all
    fields beside it, and status has sixty; thirty rules that read its phase took milliseconds of each write.

    Args:
        fields: By field, the condition that it is unchanged, or may change.
    """
    phases = texts([str(phase) for phase in EDITABLE_PHASES])
    is_editable = f"!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase in {phases}"
    # Concatenated, because the API server estimates the cost of a list as too high.
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


def size_rule() -> Rule:
    """A rule for `spec` that limits the characters of its long lists."""
    return rule(
        f"{' + '.join(_length(field) for field in ('command', 'args', 'env'))} <= {MAX_SPEC_BYTES}",
        f"command, args and values of env have more than {MAX_SPEC_BYTES} characters, and every pod repeats them: "
        "put data in the image, a ConfigMap or the bucket",
    )


def _length(field: str) -> str:
    """A CEL expression for the number of characters in a list of strings, or in the values of variables."""
    value = "has(x.value) ? size(x.value) : 0" if field == "env" else "size(x)"
    return f"(has(self.{field}) ? self.{field}.map(x, {value}).sum() : 0)"
