"""What the API server itself refuses, as CEL rules with messages. `api.validation` says the same things, and more.

A rule is evaluated only on values that fit the schema. What a rule iterates over must be capped, or the whole
definition is refused for its cost.
"""

from __future__ import annotations

from typing import Any

from tpujob_contract.environment import RESERVED_PREFIXES
from tpujob_operator.api.container_rules import (
    BUCKET_PATTERN,
    CHECKPOINT_DIR_PATTERN,
    CONFIDENTIAL_PATTERN,
    OWNED_KEY_PATTERN,
    PARENT_PATTERN,
)
from tpujob_operator.api.limits import MAX_SPEC_BYTES
from tpujob_operator.api.status import EDITABLE_PHASES
from tpujob_operator.api.validation import (
    MAX_NAME,
    NAME_PATTERN,
    OWNED_SELECTORS,
    TERMINATION_TAINT,
)
from tpujob_operator.api.volumes import OWN_MOUNTS, OWN_NAMES
from tpujob_operator.topology import suggestions
from tpujob_operator.topology.tables import GENERATIONS, SMALL_3D, Generation

type Rule = dict[str, Any]

_DIMENSION = "[1-9][0-9]{0,2}"


def accelerator_rules() -> list[Rule]:
    """For `spec.accelerator`: the form, then the sizes and shapes of each generation."""
    # Anchored once, around everything.
    flat = [g for g in GENERATIONS.values() if g.dimensions == 2]
    solid = [g for g in GENERATIONS.values() if g.dimensions == 3]
    forms = [f"cpu:{_DIMENSION}x{_DIMENSION}"]
    for generations, count in ((flat, 1), (solid, 2)):
        names = "|".join(g.name for g in generations)
        sized = "|".join(name for g in generations for name in (g.name, *g.aliases))
        forms += [f"({sized})-[1-9][0-9]{{0,4}}", f"({names}):{_DIMENSION}(x{_DIMENSION}){{{count}}}"]
    return [
        _rule(
            f"self.matches({_text('^(' + '|'.join(forms) + ')$')})",
            f"not an accelerator; allowed: {suggestions.FORMS}",
        ),
        *(_size_rule(g) for g in GENERATIONS.values()),
        *(_flat_shape_rule(g) for g in flat),
        *(_solid_shape_rule(g) for g in solid),
    ]


def _size_rule(generation: Generation) -> Rule:
    prefix = f"({'|'.join((generation.name, *generation.aliases))})"
    size, sizes = "int(self.split('-')[1])", f"[{', '.join(map(str, generation.sizes))}]"
    counted = suggestions.counts(generation) if generation.cores_in_size > 1 else "sizes count chips"
    return _rule(
        f"!self.matches('^{prefix}-[1-9][0-9]{{0,4}}$') || {size} in {sizes}",
        expression=(
            f"'no {generation.name} slice has that size ({counted}); nearest: '"
            f" + {_nearest(generation, size, list(generation.sizes))}"
        ),
    )


def _nearest(generation: Generation, size: str, sizes: list[int]) -> str:
    """A CEL expression for the sizes around one: a decision tree, as the cost of list functions is not bounded."""
    if len(sizes) == 1:
        return _text(suggestions.nearest(generation, sizes[0] + 1))
    middle = len(sizes) // 2
    below, above = (_nearest(generation, size, part) for part in (sizes[:middle], sizes[middle:]))
    return f"({size} < {sizes[middle]} ? {below} : {above})"


def _flat_shape_rule(generation: Generation) -> Rule:
    shapes = [_shape(s) for s in generation.shapes]
    return _rule(
        f"!self.startsWith('{generation.name}:') || self.split(':')[1] in {_texts(shapes)}",
        f"no {generation.name} shape; shapes: {', '.join(shapes)}",
    )


def _solid_shape_rule(generation: Generation) -> Rule:
    small = [_shape(s) for s in generation.shapes if s in SMALL_3D or s == (1, 1, 1)]
    most = generation.max_cubes * 64
    numbers = "self.split(':')[1].split('x')"
    n = [f"int({numbers}[{i}])" for i in range(3)]
    conditions = [f"{numbers}.all(n, int(n) % 4 == 0)", f"{' * '.join(n)} <= {most}"]
    if not generation.any_order:
        conditions.append(f"{n[0]} <= {n[1]} && {n[1]} <= {n[2]}")
    order = "" if generation.any_order else ", smallest first"
    return _rule(
        f"!self.matches('^{generation.name}:{_DIMENSION}(x{_DIMENSION}){{2}}$')"
        f" || self.split(':')[1] in {_texts(small)} || ({' && '.join(conditions)})",
        f"no {generation.name} shape; shapes: {', '.join(small)}, "
        f"or up to {most} chips with every dimension a multiple of 4{order}",
    )


def spec_rules() -> list[Rule]:
    """For `spec`: which fields go together."""
    return [
        _rule(
            "has(self.trainer) != has(self.command)",
            "give either trainer, or image and command",
        ),
        _rule("!has(self.command) || has(self.image)", "image and command go together"),
        _rule(
            "!has(self.checkpointDir) || !self.checkpointDir.startsWith('/') || self.accelerator.startsWith('cpu:') || "
            "(has(self.volumes) && self.volumes.exists(v, (self.checkpointDir + '/').startsWith(v.mountPath + '/')))",
            "is on no volume, and would be lost with the pod; take gs://BUCKET/PATH, or mount a persistentVolumeClaim "
            "or gcs volume there",
            field=".checkpointDir",
        ),
        _rule(
            f"{' + '.join(_length(field) for field in ('command', 'args', 'env'))} <= {MAX_SPEC_BYTES}",
            f"command, args and values of env have more than {MAX_SPEC_BYTES} characters, and every pod repeats them: "
            "put data in the image, a ConfigMap or the bucket",
        ),
        _rule("!has(self.args) || has(self.command)", "args go with command", field=".args"),
        _rule(
            "!(has(self.workers) && has(self.slices))",
            "slices and workers exclude each other: slices train together, workers are independent",
        ),
        _rule(
            "!has(self.placement) || !has(self.placement.requiredTopology) || (has(self.queue) && !has(self.workers))",
            "requiredTopology is for hosts that talk to each other and that Kueue places: give queue, and no workers",
            field=".placement.requiredTopology",
        ),
        _rule(
            "!has(self.env) || !self.accelerator.startsWith('cpu:') || "
            "self.env.all(e, !(e.name in ['JAX_PLATFORMS', 'JAX_NUM_CPU_DEVICES']))",
            "JAX_PLATFORMS and JAX_NUM_CPU_DEVICES are set by accelerator cpu:HOSTSxDEVICES; leave them out",
            field=".env",
        ),
    ]


def variable_rules() -> list[Rule]:
    """For each item of `spec.env`."""
    reserved = " || ".join(f"self.name.startsWith({_text(prefix)})" for prefix in RESERVED_PREFIXES)
    return [
        _rule(
            f"!({reserved})",
            expression="self.name + ' belongs to the operator, which sets what is right for each process'",
        ),
        _rule("!(has(self.value) && has(self.valueFrom))", "give value or valueFrom, not both"),
        _rule(
            f"!has(self.value) || self.value == '' || !self.name.matches({_text(CONFIDENTIAL_PATTERN)})",
            expression="self.name + ' does not belong in a manifest; use valueFrom.secretKeyRef'",
        ),
    ]


def source_rules() -> list[Rule]:
    """For `valueFrom` of a variable."""
    return [_rule("has(self.secretKeyRef) != has(self.configMapKeyRef)", "give one of secretKeyRef, configMapKeyRef")]


def capacity_rules() -> list[Rule]:
    """For `spec.capacity`."""
    chosen = [
        "has(self.spot) && self.spot",
        "has(self.computeClass)",
        "has(self.reservation)",
        "has(self.flexStart) && self.flexStart",
    ]
    sums = " + ".join(f"({condition} ? 1 : 0)" for condition in chosen)
    return [
        _rule(f"{sums} <= 1", "spot, reservation, computeClass and flexStart exclude each other; keep one"),
        _rule(
            "!has(self.reservation) || !has(self.reservation.subBlock) || has(self.reservation.block)",
            "a subBlock is a part of a block; give block, too",
            field=".reservation.subBlock",
        ),
    ]


def _length(field: str) -> str:
    """A CEL expression for the characters of a list of strings, or of the values of variables."""
    value = "has(x.value) ? size(x.value) : 0" if field == "env" else "size(x)"
    return f"(has(self.{field}) ? self.{field}.map(x, {value}).sum() : 0)"


def trainer_rules() -> list[Rule]:
    """For `spec.trainer`: which sources and heads go together; `api.trainer_rules` says more.

    Nothing of `steps` and `tokens`: for the 20e9 that people write, the API server's CEL has a float where the schema
    has an integer, and a rule that so much as asks whether the field is there refuses the resource.
    """
    sources = " + ".join(f"(has(self.data.{source}) ? 1 : 0)" for source in ("path", "dataset", "mixture"))
    return [
        _rule(f"{sources} <= 1", "path, dataset and mixture exclude each other; keep one", field=".data"),
        _rule(
            "!has(self.model.heads) || !has(self.model.kvHeads) || self.model.heads % self.model.kvHeads == 0",
            "kvHeads does not divide heads",
            field=".model.kvHeads",
        ),
    ]


def resource_rules() -> list[Rule]:
    """For `spec.resources`."""
    return [
        _rule(
            f"!has(self.requests) || !has(self.limits) || !has(self.requests.{name}) || !has(self.limits.{name}) || "
            f"quantity(string(self.requests.{name})).compareTo(quantity(string(self.limits.{name}))) <= 0",
            f"requests.{name} is more than limits.{name}; lower it, or raise the limit",
            field=f".requests.{name}",
        )
        for name in ("cpu", "memory")
    ]


def volume_rules() -> list[Rule]:
    """For each item of `spec.volumes`."""
    kinds = ("persistentVolumeClaim", "gcs", "secret", "configMap", "emptyDir")
    chosen = " + ".join(f"(has(self.{kind}) ? 1 : 0)" for kind in kinds)
    return [
        _rule(f"{chosen} == 1", f"give one of {', '.join(kinds)}"),
        _rule(f"!(self.name in {_texts(list(OWN_NAMES))})", "the operator has a volume of that name", field=".name"),
        _rule(
            f"!(self.mountPath in {_texts(list(OWN_MOUNTS))})",
            "the operator mounts a volume there; take another path",
            field=".mountPath",
        ),
        _rule(f"!self.mountPath.matches({_text(PARENT_PATTERN)})", "contains ..", field=".mountPath"),
    ]


def pod_metadata_rules() -> list[Rule]:
    """For `spec.podLabels` and `spec.podAnnotations`."""
    return [
        _rule(
            f"self.all(key, !key.matches({_text(OWNED_KEY_PATTERN)}))",
            "has a key that belongs to Kubernetes, JobSet, Kueue or the operator; leave it out",
        )
    ]


def priority_class_rules() -> list[Rule]:
    """For `spec.priorityClassName`."""
    return [_rule("!self.startsWith('system-')", "is for Kubernetes' own pods; use a class of your cluster's jobs")]


def checkpoint_dir_rules() -> list[Rule]:
    """For `spec.checkpointDir`."""
    return [
        _rule(
            f"!self.startsWith('gs://') || self.matches({_text(BUCKET_PATTERN)})",
            "names no bucket; a bucket's name has 3 to 222 characters, lower-case letters, digits, -, _ and .",
        ),
        _rule(f"!self.matches({_text(PARENT_PATTERN)})", "contains ..; write the directory that is meant"),
        _rule(
            f"self.matches({_text(CHECKPOINT_DIR_PATTERN)})",
            "neither gs://BUCKET/PATH nor an absolute path",
        ),
    ]


def node_selector_rules() -> list[Rule]:
    """For `spec.nodeSelector`."""
    return [
        _rule(f"!({_text(key)} in self)", f"{key} is set by {field}; leave it out")
        for key, field in OWNED_SELECTORS.items()
    ]


def toleration_rules() -> list[Rule]:
    """For each item of `spec.tolerations`."""
    return [
        _rule(
            f"self.key != {_text(TERMINATION_TAINT)}",
            f"{TERMINATION_TAINT} announces the end of a machine; never tolerate it",
        ),
        _rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds goes with effect NoExecute alone; leave it out",
        ),
    ]


def root_rules(frozen_fields: list[str]) -> list[Rule]:
    """For the whole object: its name, and what cannot change while a job runs."""
    return [
        _rule(
            f"size(self.metadata.name) <= {MAX_NAME}",
            f"metadata.name has more than {MAX_NAME} characters; pods add theirs to it",
        ),
        _rule(
            f"self.metadata.name.matches({_text(NAME_PATTERN)})",
            "metadata.name begins with a lower-case letter and goes on with lower-case letters, digits and -",
        ),
        *(_frozen_rule(field) for field in frozen_fields),
        _rule(
            "!has(oldSelf.spec.retry) || (has(self.spec.retry) && self.spec.retry >= oldSelf.spec.retry)",
            "is a number to raise: it cannot become smaller",
            field=".spec.retry",
        ),
    ]


def _frozen_rule(field: str) -> Rule:
    phases = _texts([str(phase) for phase in EDITABLE_PHASES])
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return _rule(
        "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
        f"oldSelf.status.phase in {phases} || "
        f"(has({now}) == has({before}) && (!has({now}) || {now} == {before}))",
        f"cannot change in phases other than {', '.join(EDITABLE_PHASES)}",
        expression=(
            "oldSelf.status.phase == 'Succeeded' ? 'the job has succeeded and stays as it was; create another one' : "
            "'cannot change while the job is ' + oldSelf.status.phase + "
            "'; set suspend: true, wait for phase Suspended, and change it then'"
        ),
        field=f".spec.{field}",
    )


def _rule(rule: str, message: str | None = None, *, expression: str | None = None, field: str | None = None) -> Rule:
    parts = {"rule": rule, "message": message, "messageExpression": expression, "fieldPath": field}
    return {key: value for key, value in parts.items() if value is not None}


def _text(text: str) -> str:
    """A CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _texts(texts: list[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
