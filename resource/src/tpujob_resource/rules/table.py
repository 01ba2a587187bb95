"""The rules between fields of a job, one row each.

The CLI and the operator evaluate the rows, `crd/rule_cel.py` translates them to CEL for the API server with the same
messages, and docs/reference/rules.md lists them. The trainer publishes the rules of its `trainer` block in the same
form; rules that need arithmetic over a topology, and so have no CEL, are in `computed.py`.
"""

import dataclasses
from collections.abc import Mapping

from tpujob_contract import kubernetes_names
from tpujob_contract.corpus_tasks import CORPUS_TASKS
from tpujob_contract.environment import RESERVED_PREFIXES
from tpujob_contract.field_rules import (
    LASTING,
    TASK,
    Rule,
    absent,
    at_least,
    differs,
    given,
    larger_amount,
    less,
    longer,
    matches,
    none_of,
    on_volume,
    one_of,
    rule,
    several,
    there,
)
from tpujob_contract.storage_address import BACKENDS, BUCKET_NAME, CHECKPOINT_BUCKET, NO_PATTERN, PATTERN_IN_BUCKET
from tpujob_resource.models.spec import Spec
from tpujob_resource.models.volumes import OWN_MOUNTS, OWN_NAMES, Volume
from tpujob_resource.rules.code import CODE, PACKAGES
from tpujob_resource.topology import parse
from tpujob_resource.topology.names import (
    DYNAMIC_SLICES,
    ONE_CHIP,
    ONE_HOST,
    SUB_SLICES,
    TWO_MACHINES,
    generations,
    of_generations,
)

MAX_NAME = 49
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_SUPER_SLICE_NAME = 28
"""The slice controller derives names from the job's (AI-Hypercomputer/xpk:src/xpk/core/scheduling.py)."""
SHRINK_AFTER_SECONDS = 300
"""Available machines arrive within minutes; hosts that wait for their peers end after startupSeconds."""
STARTUP_SECONDS: int = Spec.model_fields["startup_seconds"].default
TERMINATION_TAINT = "cloud.google.com/impending-node-termination"
CHECKPOINT_DIR_PATTERN = rf"^({CHECKPOINT_BUCKET}://{BUCKET_NAME}(/\S*)?|/\S*)$"
BUCKET_PATTERN = rf"^{CHECKPOINT_BUCKET}://{BUCKET_NAME}(/|$)"
PARENT_PATTERN = r"(^|/)\.\.(/|$)"
"""A path that contains `..`."""
CONFIDENTIAL_PATTERN = r"^(.*_)?(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS)$"
"""Variables whose value must not be in a manifest."""
OWNED_KEY_PATTERN = r"^[a-z0-9.-]*(kubernetes\.io|k8s\.io|tpujob\.dev)/"
"""Keys of labels and annotations that Kubernetes, JobSet, Kueue or the operator owns."""
OWNED_SELECTORS = {
    parse.ACCELERATOR_LABEL: "spec.accelerator",
    parse.TOPOLOGY_LABEL: "spec.accelerator",
    "cloud.google.com/gke-spot": "spec.capacity.spot",
    "cloud.google.com/gke-flex-start": "spec.capacity.flexStart",
    "cloud.google.com/gke-provisioning": "spec.capacity",
    "cloud.google.com/gke-queued": "spec.capacity.queuedProvisioning",
    "cloud.google.com/reservation-name": "spec.capacity.reservation.name",
    "cloud.google.com/reservation-project": "spec.capacity.reservation.project",
    "cloud.google.com/reservation-affinity": "spec.capacity.reservation",
    "cloud.google.com/reservation-blocks": "spec.capacity.reservation.block",
    "cloud.google.com/reservation-subblocks": "spec.capacity.reservation.subBlock",
    "cloud.google.com/compute-class": "spec.capacity.computeClass",
    "cloud.google.com/placement-policy-name": "spec.placement.policyName",
}
"""The field that selects by a node label and sets everything else that it needs, by label."""

_ON_TPUS = differs("accelerator", "^cpu:")
_UNIT_TASK = one_of("trainer.task", CORPUS_TASKS)
_DIRECTORY = "gs://BUCKET/PATH, or "
_MOUNT = f"a {' or '.join(LASTING)} volume"


def _excludes(field: str, other: str, message: str) -> Rule:
    return rule(field, message, given(field, other))


def _requires(field: str, other: str, message: str) -> Rule:
    return rule(field, message, given(field), absent(other))


def _lasting(field: str, rather: str = "") -> tuple[Rule, ...]:
    """Rules for a directory that pods write and later pods read."""
    rows = {
        "none": f"is on no volume, and would be lost with the pod; take {rather}{_MOUNT} mounted there (spec.volumes)",
        "lost": f"is on a volume that does not outlive the pod; take {rather}{_MOUNT}",
        "readOnly": "is on a volume that is readOnly; drop readOnly",
    }
    return tuple(rule(field, message, on_volume(field, kind), _ON_TPUS, shows=True) for kind, message in rows.items())


def _of_code(field: str, rather: str) -> tuple[Rule, ...]:
    """Rules for code that pods read from a volume."""
    return (
        rule(
            field,
            "contains ..; write the path that is meant",
            matches(field, "^(file://)?/"),
            matches(field, PARENT_PATTERN),
            shows=True,
        ),
        rule(
            field,
            f"is on no volume of the job; take {rather}, or mount the volume that holds it (spec.volumes)",
            on_volume(field, "none"),
            _ON_TPUS,
            shows=True,
        ),
    )


_NAME = (
    rule(
        "metadata.name",
        f"has more than {MAX_NAME} characters, and pods add theirs to it; shorten it",
        longer("metadata.name", MAX_NAME),
        shows=True,
    ),
    rule(
        "metadata.name",
        "is not a DNS label; begin with a lower-case letter, go on with lower-case letters, digits and -, and do not "
        "end with -",
        differs("metadata.name", NAME_PATTERN),
        shows=True,
    ),
    rule(
        "metadata.name",
        f"has more than {MAX_SUPER_SLICE_NAME} characters, and the slice controller makes names of it; shorten it, or "
        "leave spec.placement.dynamicSlice out",
        longer("metadata.name", MAX_SUPER_SLICE_NAME),
        given("spec.placement.dynamicSlice"),
        shows=True,
    ),
)

_PROGRAM = (
    *(
        _excludes(field, "trainer", "excludes trainer, which brings its own; keep one of them")
        for field in ("command", "args", "framework", "silenceSeconds")
    ),
    rule(
        "trainer",
        "is missing; describe a training run here, or give image and command",
        absent("trainer", "image", "command"),
    ),
    rule(
        "image",
        "is missing; command says what to run, image in what",
        given("command"),
        absent("trainer", "image"),
    ),
    rule(
        "command",
        "is missing; the image's own entry point cannot be seen from outside, so name the command",
        given("image"),
        absent("trainer", "command"),
    ),
)

_COUNT = f'nodeSelector."{parse.COUNT_LABEL}"'
_WITHOUT_MULTISLICE = generations(lambda generation: not generation.multislice)
_WITHOUT_FLEX_START = generations(lambda generation: not generation.flex_start)
_HALVES = (one_of("accelerator", TWO_MACHINES), one_of(_COUNT, ("4",)))
_OF_SEVERAL_HOSTS = (
    "a worker is one host, and a slice of this accelerator has several; take one of one host, such as v5e-4, v6e-8 or "
    "cpu:1x4"
)
_STARTS_ALONE = "is for programs that start together; a worker starts again by itself: leave it out"
_ALONE = "is for independent workers of one host each; set spec.workers, and an accelerator of one host"
_JOINED = (
    "GKE joins only slices of several hosts; ask for one larger slice, or for workers instead of slices if they need "
    "not talk"
)

_HOSTS = (
    _excludes("workers", "slices", "excludes slices, which train together; workers are independent: keep one of them"),
    rule(
        "workers",
        _OF_SEVERAL_HOSTS,
        given("workers"),
        none_of("accelerator", ONE_HOST),
        differs("accelerator", "^cpu:1x"),
    ),
    rule("workers", _OF_SEVERAL_HOSTS, given("workers"), *_HALVES),
    rule("inPlaceRestarts", _STARTS_ALONE, at_least("inPlaceRestarts", 1), given("workers")),
    *(
        rule(
            "slices",
            f"{name} has no multislice, so slices of it cannot train together; ask for one larger slice",
            at_least("slices", 2),
            matches("accelerator", of_generations([name])),
        )
        for name in _WITHOUT_MULTISLICE
    ),
    rule(
        "slices",
        _JOINED,
        at_least("slices", 2),
        one_of("accelerator", [name for name in ONE_HOST if name not in TWO_MACHINES]),
        differs("accelerator", of_generations(_WITHOUT_MULTISLICE)),
    ),
    rule("slices", _JOINED, at_least("slices", 2), one_of("accelerator", TWO_MACHINES), one_of(_COUNT, ("8",))),
    *(
        rule("trainer.task", _ALONE, _UNIT_TASK, absent("workers"), *several_hosts)
        for several_hosts in (
            (none_of("accelerator", ONE_HOST), _ON_TPUS),
            _HALVES,
            (one_of("accelerator", TWO_MACHINES), at_least("slices", 2)),
        )
    ),
    rule(
        "checkpointDir",
        "required for tasks of workers, which write their files there; give gs://BUCKET/PATH",
        _UNIT_TASK,
        absent("checkpointDir"),
        _ON_TPUS,
    ),
    rule(
        "workers",
        "excludes a training run, whose hosts work together; leave workers out, or set trainer.task",
        given("workers", "trainer"),
        one_of("trainer.task", (TASK,), TASK),
    ),
)

_SLICE_COUNT = (
    rule(
        "minSlices",
        "needs slices, and at least 2; a job of one slice has none to go on without",
        given("minSlices"),
        less("slices", 2, 1),
    ),
    rule("minSlices", "is more than slices; lower it", at_least("slices", 2), less("slices", "minSlices"), shows=True),
    _requires(
        "minSlices", "checkpointDir", "needs checkpointDir, from which the job goes on with another number of slices"
    ),
    *(
        _requires(field, "minSlices", "needs minSlices, the number of slices that the job may go on with")
        for field in ("shrinkAfterSeconds", "growAfterSeconds")
    ),
    rule(
        "shrinkAfterSeconds",
        f"is not less than startupSeconds, after which hosts that wait for the missing ones fail (defaults: "
        f"{SHRINK_AFTER_SECONDS} and {STARTUP_SECONDS}); raise startupSeconds or lower it",
        given("minSlices"),
        at_least("shrinkAfterSeconds", "startupSeconds", SHRINK_AFTER_SECONDS, STARTUP_SECONDS),
        shows=True,
    ),
)

_OF_MULTIKUEUE = one_of("managedBy", (kubernetes_names.MULTIKUEUE,))
_MANAGER = (
    rule(
        "managedBy",
        "chooses a cluster for jobs of a queue, and the job has none; set queue",
        _OF_MULTIKUEUE,
        absent("queue"),
    ),
    rule(
        "minSlices",
        "does not go with MultiKueue, for which a job has the same number of pods all the time; leave it out",
        given("minSlices"),
        _OF_MULTIKUEUE,
    ),
)

_BY_KUEUE = ("requiredTopology", "poolTopology", "dynamicSlice")
_MACHINES = (
    _requires(
        "capacity.queuedProvisioning", "queue", "Kueue asks for the machines, and the job has no queue; set queue"
    ),
    *(
        rule(
            "capacity.flexStart",
            f"{name} is not offered with flex-start; leave it out",
            given("capacity.flexStart"),
            matches("accelerator", of_generations([name])),
        )
        for name in _WITHOUT_FLEX_START
    ),
    rule(
        "placement",
        f"{', '.join(_BY_KUEUE[:-1])} and {_BY_KUEUE[-1]} exclude each other; keep one",
        several(*(f"placement.{field}" for field in _BY_KUEUE)),
    ),
    *(
        _requires(f"placement.{field}", "queue", "is for Kueue, and the job has no queue; set queue, or leave it out")
        for field in _BY_KUEUE
    ),
    *(
        _excludes(
            f"placement.{field}", "workers", "is for hosts that talk to each other, and workers do not; leave it out"
        )
        for field in _BY_KUEUE
    ),
    rule(
        "placement.poolTopology",
        f"is for {SUB_SLICES}, and this is another generation; leave it out",
        given("placement.poolTopology"),
        differs("accelerator", of_generations([SUB_SLICES])),
    ),
    rule(
        "placement.dynamicSlice",
        f"is for {DYNAMIC_SLICES}, and this is another generation; leave it out",
        given("placement.dynamicSlice"),
        differs("accelerator", of_generations([DYNAMIC_SLICES])),
    ),
    rule(
        "placement.dynamicSlice",
        "is for slices of 2x2x1 chips and more, and this one is a single chip; leave it out",
        given("placement.dynamicSlice"),
        one_of("accelerator", ONE_CHIP),
    ),
)

_BUCKETS = {scheme: backend for scheme, backend in BACKENDS.items() if backend.has_buckets}
_CHECKPOINT_DIR = (
    rule(
        "",
        "names no bucket; a bucket's name has 3 to 222 characters, lower-case letters, digits, -, _ and ., and starts "
        "and ends with a letter or digit",
        matches("", f"^{CHECKPOINT_BUCKET}://"),
        differs("", BUCKET_PATTERN),
        shows=True,
    ),
    rule(
        "",
        "is neither gs://BUCKET/PATH nor an absolute path; write one of them",
        differs("", f"^({'|'.join(_BUCKETS)})://"),
        differs("", CHECKPOINT_DIR_PATTERN),
        shows=True,
    ),
    *(
        rule(
            "",
            f"is in {backend.name}, which holds data, but TensorStore cannot write arrays there; write "
            "gs://BUCKET/PATH, or mount it as a volume that all hosts share, and write its path",
            matches("", f"^{scheme}://"),
            shows=True,
        )
        for scheme, backend in _BUCKETS.items()
        if not backend.holds_checkpoints
    ),
    rule(
        "",
        "has spaces; leave them out",
        matches("", BUCKET_PATTERN),
        differs("", CHECKPOINT_DIR_PATTERN),
        shows=True,
    ),
    rule("", "contains ..; write the directory that is meant", matches("", PARENT_PATTERN), shows=True),
    rule("", f"{NO_PATTERN}; leave them out", matches("", PATTERN_IN_BUCKET), shows=True),
)

_WAYS_TO_PAY = ("spot", "computeClass", "reservation", "flexStart", "queuedProvisioning")
_CAPACITY = (
    rule(
        "",
        f"{', '.join(_WAYS_TO_PAY[:-1])} and {_WAYS_TO_PAY[-1]} exclude each other; keep one",
        several(*_WAYS_TO_PAY),
    ),
    _requires("reservation.subBlock", "reservation.block", "is a part of a block; give block, too"),
)

_VARIABLE = (
    rule(
        "name",
        "belongs to the operator, which sets what is right for each process",
        matches("name", f"^({'|'.join(RESERVED_PREFIXES)})"),
        shows=True,
    ),
    rule(
        "name",
        "is set by accelerator cpu:HOSTSxDEVICES; leave it out",
        one_of("name", ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES")),
        matches("/spec.accelerator", "^cpu:"),
        shows=True,
    ),
    rule("", "give value or valueFrom, not both", there("value"), given("valueFrom")),
    rule(
        "name",
        "has a value that does not belong in a manifest; use valueFrom.secretKeyRef",
        matches("name", CONFIDENTIAL_PATTERN),
        matches("value", "(?s)."),
        shows=True,
    ),
)
_SOURCE = "give one of secretKeyRef and configMapKeyRef"
_VALUE_FROM = (
    rule("", _SOURCE, several("secretKeyRef", "configMapKeyRef")),
    rule("", _SOURCE, absent("secretKeyRef", "configMapKeyRef")),
)

_KINDS = tuple(str(field.alias) for field in Volume.model_fields.values() if field.default is None)
_ONE_KIND = f"give one of {', '.join(_KINDS[:-1])} and {_KINDS[-1]}"
_VOLUME = (
    rule("", _ONE_KIND, several(*_KINDS)),
    rule("", _ONE_KIND, absent(*_KINDS)),
    rule("name", "is the operator's own; take another", one_of("name", OWN_NAMES), shows=True),
    rule("mountPath", "is the operator's own; take another", one_of("mountPath", OWN_MOUNTS), shows=True),
    rule(
        "mountPath",
        "contains ..; write the directory that is meant",
        matches("mountPath", PARENT_PATTERN),
        shows=True,
    ),
)

_OWNED_KEY = (
    rule("", "belongs to Kubernetes, JobSet, Kueue or the operator; leave it out", matches("", OWNED_KEY_PATTERN)),
)

_SELECTOR = tuple(
    rule("", f"is set by {field}; leave it out", one_of("", (key,))) for key, field in OWNED_SELECTORS.items()
)

_TOLERATION = (
    rule("key", "announces the end of a machine; never tolerate it", one_of("key", (TERMINATION_TAINT,)), shows=True),
    rule(
        "tolerationSeconds",
        "goes with effect NoExecute alone; leave it out",
        there("tolerationSeconds"),
        none_of("effect", ("NoExecute",), ""),
    ),
    rule(
        "value",
        "goes with operator Equal; with Exists leave it out",
        there("value"),
        one_of("operator", ("Exists",)),
    ),
)

ROWS: Mapping[str, tuple[Rule, ...]] = {
    "": _NAME,
    "spec": (
        *_PROGRAM,
        *_HOSTS,
        *_lasting("checkpointDir", _DIRECTORY),
        *_lasting("trainer.checkpoint.local.dir"),
        *_of_code("code.archive", "gs://BUCKET/PATH"),
        *_of_code("code.repository", "https://HOST/PATH"),
        *_MACHINES,
        *_SLICE_COUNT,
        *_MANAGER,
        rule(
            _COUNT,
            "is not a number of chips that a machine has: 1, 4 or 8",
            none_of(_COUNT, ("1", "4", "8")),
            shows=True,
        ),
    ),
    "spec.checkpointDir": _CHECKPOINT_DIR,
    "spec.code": CODE,
    "spec.packages": PACKAGES,
    "spec.capacity": _CAPACITY,
    "spec.priorityClassName": (
        rule(
            "", "is for Kubernetes' own pods; use a class of your cluster's jobs", matches("", "^system-"), shows=True
        ),
    ),
    "spec.env[]": _VARIABLE,
    "spec.env[].valueFrom": _VALUE_FROM,
    "spec.volumes[]": _VOLUME,
    "spec.podLabels{}": _OWNED_KEY,
    "spec.podAnnotations{}": _OWNED_KEY,
    "spec.nodeSelector{}": _SELECTOR,
    "spec.tolerations[]": _TOLERATION,
    "spec.resources": tuple(
        rule(
            f"requests.{name}",
            f"is more than limits.{name}; lower it, or raise the limit",
            larger_amount(f"requests.{name}", f"limits.{name}"),
            shows=True,
        )
        for name in ("cpu", "memory", "ephemeral-storage")
    ),
}
"""The rules by their place."""

RULES = tuple(dataclasses.replace(rule, at=place) for place, rules in ROWS.items() for rule in rules)

UNIQUE = (("spec.env[]", "name"), ("spec.volumes[]", "name"), ("spec.volumes[]", "mountPath"))
"""Lists, and the field whose value must be unique in each."""
TWICE = "is there twice; keep one"
