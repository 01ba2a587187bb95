"""What the API server refuses of `spec`: which fields go together. `api.validation` says the same things, and more."""

from __future__ import annotations

from tpujob_resource.crd.block_rules import published_rules
from tpujob_resource.crd.cel import Rule, rule, text, texts
from tpujob_resource.models.shared_units import UNIT_TASKS
from tpujob_resource.models.spec import Spec
from tpujob_resource.rules.code_rules import ARCHIVE_HAS_DIGEST, COMMIT_PATTERN, EITHER, WHOLE_COMMIT
from tpujob_resource.rules.container_rules import BUCKET_PATTERN, CHECKPOINT_DIR_PATTERN, PARENT_PATTERN
from tpujob_resource.rules.limits import MAX_SPEC_BYTES
from tpujob_resource.rules.slice_counts import SHRINK_AFTER_SECONDS
from tpujob_resource.rules.validation import TRAINING_OF_WORKERS, UNITS_WITHOUT_DIRECTORY, UNITS_WITHOUT_WORKERS
from tpujob_resource.topology.tables import GENERATIONS

_BY_KUEUE = (
    "(has(self.placement.requiredTopology) ? 1 : 0) + (has(self.placement.poolTopology) ? 1 : 0) + "
    "(has(self.placement.superSlice) && self.placement.superSlice ? 1 : 0)"
)
"""How many fields of `placement` leave the choice of machines to Kueue."""


def spec_rules() -> list[Rule]:
    """For `spec`: which fields go together."""
    return [
        rule(
            "has(self.trainer) != has(self.command)",
            "give either trainer, or image and command",
        ),
        rule("!has(self.command) || has(self.image)", "image and command go together"),
        rule(
            "!has(self.checkpointDir) || !self.checkpointDir.startsWith('/') || self.accelerator.startsWith('cpu:') || "
            "(has(self.volumes) && self.volumes.exists(v, (self.checkpointDir + '/').startsWith(v.mountPath + '/')))",
            "is on no volume, and would be lost with the pod; take gs://BUCKET/PATH, or mount a persistentVolumeClaim "
            "or gcs volume there",
            field=".checkpointDir",
        ),
        rule(
            "!has(self.code) || !has(self.code.archive) || self.code.archive.startsWith('gs://') || "
            "self.accelerator.startsWith('cpu:') || "
            "(has(self.volumes) && self.volumes.exists(v, self.code.archive.startsWith(v.mountPath + '/')))",
            "is on no volume of the job; take gs://BUCKET/PATH, or mount the volume that holds it",
            field=".code.archive",
        ),
        rule(
            "!has(self.code) || !has(self.code.repository) || !self.code.repository.startsWith('file://') || "
            "self.accelerator.startsWith('cpu:') || (has(self.volumes) && "
            "self.volumes.exists(v, self.code.repository.startsWith('file://' + v.mountPath + '/')))",
            "is on no volume of the job; take https://HOST/PATH, or mount the volume that holds it",
            field=".code.repository",
        ),
        rule(
            f"{' + '.join(_length(field) for field in ('command', 'args', 'env'))} <= {MAX_SPEC_BYTES}",
            f"command, args and values of env have more than {MAX_SPEC_BYTES} characters, and every pod repeats them: "
            "put data in the image, a ConfigMap or the bucket",
        ),
        rule("!has(self.args) || has(self.command)", "args go with command", field=".args"),
        rule(
            "!(has(self.workers) && has(self.slices))",
            "slices and workers exclude each other: slices train together, workers are independent",
        ),
        *_task_rules(),
        *_slice_rules(),
        rule(
            f"!has(self.placement) || ({_BY_KUEUE}) == 0 || (has(self.queue) && !has(self.workers))",
            "requiredTopology, poolTopology and superSlice are for hosts that talk to each other and that Kueue "
            "places: give queue, and no workers",
            field=".placement",
        ),
        rule(
            f"!has(self.placement) || ({_BY_KUEUE}) <= 1",
            "requiredTopology, poolTopology and superSlice exclude each other; keep one",
            field=".placement",
        ),
        rule(
            "!has(self.capacity) || !has(self.capacity.queuedProvisioning) || has(self.queue)",
            "Kueue asks for the machines: give queue",
            field=".capacity.queuedProvisioning",
        ),
        rule(
            "!has(self.env) || !self.accelerator.startsWith('cpu:') || "
            "self.env.all(e, !(e.name in ['JAX_PLATFORMS', 'JAX_NUM_CPU_DEVICES']))",
            "JAX_PLATFORMS and JAX_NUM_CPU_DEVICES are set by accelerator cpu:HOSTSxDEVICES; leave them out",
            field=".env",
        ),
    ]


def _slice_rules() -> list[Rule]:
    """For `spec.minSlices` and what goes with it; `api.slice_counts` says more."""
    waits = f"(has(self.shrinkAfterSeconds) ? self.shrinkAfterSeconds : {SHRINK_AFTER_SECONDS})"
    startup = f"(has(self.startupSeconds) ? self.startupSeconds : {Spec.model_fields['startup_seconds'].default})"
    return [
        rule(
            "!has(self.minSlices) || (has(self.slices) && self.slices >= 2 && self.minSlices <= self.slices)",
            "is at most slices, of which there must be 2 or more",
            field=".minSlices",
        ),
        rule(
            "!has(self.minSlices) || has(self.checkpointDir)",
            "needs checkpointDir, from which the job goes on with another number of slices",
            field=".minSlices",
        ),
        rule(
            "!has(self.minSlices) || !has(self.queue)",
            "excludes queue, as Kueue admits all slices of a job or none",
            field=".minSlices",
        ),
        *(
            rule(f"!has(self.{name}) || has(self.minSlices)", "needs minSlices", field=f".{name}")
            for name in ("shrinkAfterSeconds", "growAfterSeconds")
        ),
        rule(
            f"!has(self.minSlices) || {waits} < {startup}",
            "is not less than startupSeconds, after which hosts that wait for the missing ones fail",
            field=".shrinkAfterSeconds",
        ),
    ]


def _length(field: str) -> str:
    """A CEL expression for the characters of a list of strings, or of the values of variables."""
    value = "has(x.value) ? size(x.value) : 0" if field == "env" else "size(x)"
    return f"(has(self.{field}) ? self.{field}.map(x, {value}).sum() : 0)"


def code_rules() -> list[Rule]:
    """For `spec.code`: an archive with its digest, or a repository with a commit."""
    return [
        rule("has(self.archive) != has(self.repository)", EITHER),
        rule("has(self.archive) == has(self.sha256)", ARCHIVE_HAS_DIGEST, field=".sha256"),
        rule(
            f"!has(self.repository) || (has(self.commit) && self.commit.matches('{COMMIT_PATTERN}'))",
            WHOLE_COMMIT,
            field=".commit",
        ),
    ]


def capacity_rules() -> list[Rule]:
    """For `spec.capacity`."""
    chosen = [
        "has(self.spot) && self.spot",
        "has(self.computeClass)",
        "has(self.reservation)",
        "has(self.flexStart) && self.flexStart",
        "has(self.queuedProvisioning)",
    ]
    sums = " + ".join(f"({condition} ? 1 : 0)" for condition in chosen)
    return [
        rule(
            f"{sums} <= 1",
            "spot, reservation, computeClass, flexStart and queuedProvisioning exclude each other; keep one",
        ),
        rule(
            "!has(self.reservation) || !has(self.reservation.subBlock) || has(self.reservation.block)",
            "a subBlock is a part of a block; give block, too",
            field=".reservation.subBlock",
        ),
    ]


def checkpoint_dir_rules() -> list[Rule]:
    """For `spec.checkpointDir`."""
    return [
        rule(
            f"!self.startsWith('gs://') || self.matches({text(BUCKET_PATTERN)})",
            "names no bucket; a bucket's name has 3 to 222 characters, lower-case letters, digits, -, _ and .",
        ),
        rule(f"!self.matches({text(PARENT_PATTERN)})", "contains ..; write the directory that is meant"),
        rule(
            f"self.matches({text(CHECKPOINT_DIR_PATTERN)})",
            "neither gs://BUCKET/PATH nor an absolute path; write one of them",
        ),
    ]


def _task_rules() -> list[Rule]:
    """Which tasks have workers, and where these write."""
    is_task = f"has(self.trainer) && has(self.trainer.task) && self.trainer.task in {texts(UNIT_TASKS)}"
    one_host = [
        f"{name}-{size}"
        for generation in GENERATIONS.values()
        for size, shape in generation.sizes.items()
        if shape in generation.single_host
        for name in (generation.name, *generation.aliases)
    ]
    one_host += [f"{g.name}:{'x'.join(map(str, shape))}" for g in GENERATIONS.values() for shape in g.single_host]
    is_cpu = "self.accelerator.startsWith('cpu:')"
    return [
        rule(
            f"!({is_task}) || has(self.workers) || {is_cpu} || "
            f"((!has(self.slices) || self.slices == 1) && self.accelerator in {texts(sorted(one_host))})",
            f"task {UNITS_WITHOUT_WORKERS}",
            field=".trainer",
        ),
        rule(f"!({is_task}) || has(self.checkpointDir) || {is_cpu}", UNITS_WITHOUT_DIRECTORY, field=".checkpointDir"),
        rule(
            "!has(self.workers) || !has(self.trainer) || (has(self.trainer.task) && self.trainer.task != 'pretrain')",
            TRAINING_OF_WORKERS,
            field=".workers",
        ),
    ]


def trainer_rules() -> list[Rule]:
    """For `spec.trainer`: which sources and heads go together, and the rows that the trainer publishes."""
    sources = " + ".join(f"(has(self.data.{source}) ? 1 : 0)" for source in ("path", "dataset", "mixture"))
    return [
        rule(f"{sources} <= 1", "path, dataset and mixture exclude each other; keep one", field=".data"),
        rule(
            "!has(self.model.heads) || !has(self.model.kvHeads) || self.model.heads % self.model.kvHeads == 0",
            "kvHeads does not divide heads",
            field=".model.kvHeads",
        ),
        *published_rules(),
    ]
