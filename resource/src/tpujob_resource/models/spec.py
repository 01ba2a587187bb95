"""`spec` of a TpuTrainingJob: what users can set. `kubectl explain` shows the docstrings below.

Defaults are here and not in the schema if defaulting by the API server would defeat a rule: `slices` and `workers`
exclude each other, and the rule reads only the fields that the user wrote.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from tpujob_resource.models.fields import (
    CODE_ARCHIVE_PATTERN,
    CODE_REPOSITORY_PATTERN,
    FILE,
    IMAGE_PATTERN,
    MANAGER_PATTERN,
    NO_NUL_PATTERN,
    PACKAGES_PATTERN,
    Change,
    DataKey,
    LabelKey,
    LabelValue,
    ObjectName,
    Part,
    Quantity,
    QueueName,
)
from tpujob_resource.models.scheduling import Capacity, Placement, Toleration
from tpujob_resource.models.volumes import Volume

EnvName = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
Argument = Annotated[str, StringConstraints(max_length=8192, pattern=NO_NUL_PATTERN)]


class SecretKeySelector(Part):
    """One key of a Secret in the job's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: DataKey
    """Key within it."""
    optional: bool = False
    """Whether pods start without it. Default false."""


class ConfigMapKeySelector(Part):
    """One key of a ConfigMap in the job's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: DataKey
    """Key within it."""
    optional: bool = False
    """Whether pods start without it. Default false."""


class EnvSource(Part):
    """Where a variable's value comes from: exactly one of the two."""

    secret_key_ref: SecretKeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: ConfigMapKeySelector | None = None
    """A key of a ConfigMap."""


class EnvVar(Part):
    """One environment variable of every process: a value, or where it comes from."""

    name: EnvName
    """Name; TPUJOB_*, MEGASCALE_* and other names of the wiring belong to the operator."""
    value: Annotated[str, StringConstraints(max_length=32768, pattern=NO_NUL_PATTERN)] | None = None
    """Value, a string. Default empty. Never a token: name the Secret in valueFrom."""
    value_from: EnvSource | None = None
    """A Secret or a ConfigMap instead of a value."""


class Restarts(Part):
    """How often the job may be restarted, by cause. Disruptions (preemption, maintenance, lost nodes) are free."""

    crashes: Annotated[int, Field(ge=0, le=1000)] = 3
    """Crashes without a new checkpoint after which the job restarts; one more fails it. Default 3."""


class ResourceAmounts(Part):
    """Amounts of the main container. TPU chips are asked for by the accelerator."""

    cpu: Quantity | None = None
    """Processor cores, such as 8 or 500m."""
    memory: Quantity | None = None
    """Bytes, such as 64Gi."""
    ephemeral_storage: Annotated[Quantity | None, Field(alias="ephemeral-storage")] = None
    """Bytes of disk for logs, /tmp and HOME, such as 100Gi."""


class Resources(Part):
    """What the main container of every pod asks for, and may have at most."""

    requests: ResourceAmounts | None = None
    """Set aside on the node. Default: 80 % of a TPU machine's processors and memory, else nothing."""
    limits: ResourceAmounts | None = None
    """More than this is refused or killed. Default: no limit."""


class LocalObject(Part):
    """An object of the job's namespace, by name."""

    name: ObjectName
    """Its name."""


class Code(Part):
    """Python code for every pod, read-only and on PYTHONPATH: an archive, or a commit of a git repository."""

    archive: Annotated[str, StringConstraints(min_length=2, max_length=1024, pattern=CODE_ARCHIVE_PATTERN)] | None = (
        None
    )
    """A .tar.gz file: gs://BUCKET/PATH, or an absolute path on one of the job's volumes. Excludes repository."""
    sha256: Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the archive, 64 hexadecimal digits. The pod fails if the archive has another one."""
    repository: (
        Annotated[str, StringConstraints(min_length=8, max_length=1024, pattern=CODE_REPOSITORY_PATTERN)] | None
    ) = None
    """A git repository that pods read without a password: https://HOST/PATH, or file:///PATH on one of the job's
    volumes. Needs commit; excludes archive."""
    commit: (
        Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?(\+changes)?$")] | None
    ) = None
    """With repository: the commit to fetch, 40 hexadecimal digits. With archive: the commit that it was packed from,
    for information only; +changes says that files were edited."""

    @property
    def identity(self) -> str:
        """The identity of the code: the digest of the archive, or the commit."""
        return self.sha256 or self.commit or ""

    @property
    def path(self) -> str | None:
        """The path of the code on a volume; None: it comes over the network."""
        if self.repository is not None:
            return self.repository[len(FILE) :] if self.repository.startswith(FILE) else None
        return self.archive if self.archive is not None and self.archive.startswith("/") else None


PackagesPath = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=PACKAGES_PATTERN)]


class Packages(Part):
    """Python packages that pip installs in each pod before the processes start, from wheels only."""

    requirements: PackagesPath | None = None
    """A requirements file with the version and --hash of every package, dependencies included. A path relative to the
    code, or absolute in the image or on a volume."""
    wheels: PackagesPath | None = None
    """A folder of wheels to install from instead of an index; a path like requirements. Without requirements all its
    wheels are installed, and it must be in the code."""


class Spec(Part):
    """What to run, and on which accelerators."""

    accelerator: Annotated[str, StringConstraints(min_length=1, max_length=32)]
    """One slice: a size (v5e-256, v4-8), a shape in chips (v6e:16x16) or cpu:HOSTSxDEVICES."""
    slices: Annotated[int, Field(ge=1, le=256)] | None = None
    """Equal slices that train together, as one JAX runtime. Default 1. Excludes workers."""
    min_slices: Annotated[int | None, Field(ge=1, le=256), Change.RUNNING] = None
    """Fewest slices to run with. While machines or quota for all slices are missing, the job runs with fewer, from its
    last checkpoint. Default: slices. Needs checkpointDir."""
    shrink_after_seconds: Annotated[int | None, Field(ge=5, le=86400), Change.RUNNING] = None
    """Seconds to wait for machines or quota before the job runs with fewer slices, and the shortest time before slices
    are added again. Less than startupSeconds. Default 300. Needs minSlices."""
    grow_after_seconds: Annotated[int | None, Field(ge=60, le=2_592_000), Change.RUNNING] = None
    """Seconds with fewer slices after which the job tries all slices again, even if no free machines are seen. For node
    pools with an autoscaler. Default: never. Needs minSlices."""
    workers: Annotated[int | None, Field(ge=1, le=4096), Change.ELASTIC] = None
    """Number of independent single-host processes. Excludes slices. May change while the job runs if trainer.task is
    for independent workers and there is no queue."""
    trainer: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    """Configuration of the trainer: model, data, tokens, … Excludes command."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=IMAGE_PATTERN)] | None = None
    """Container image. With command: any image with Python 3.9 or newer. With trainer: one made FROM the trainer's."""
    command: Annotated[list[Argument], Field(min_length=1, max_length=64)] | None = None
    """Command to run in the image, as a list; no shell."""
    args: Annotated[list[Argument], Field(max_length=512)] | None = None
    """Arguments of the command, as a list."""
    code: Code | None = None
    """Python code that is added to the image. Default: none."""
    packages: Packages | None = None
    """Python packages that neither image nor code has. Default: none."""
    framework: Literal["maxtext", "pytorch"] | None = None
    """Framework of the command: sets the environment variables by which it finds its peers. Default: those of JAX."""
    libtpu_flags: Literal["recommended", "none"] | None = None
    """Whether LIBTPU_INIT_ARGS gets the flags that published recipes set for this generation of TPU. A flag that env
    sets itself keeps its value. Default: recommended with a trainer and with framework maxtext, else none."""
    env: Annotated[list[EnvVar], Field(max_length=128)] | None = None
    """Environment variables of every process."""
    volumes: Annotated[list[Volume], Field(max_length=32)] | None = None
    """Volumes to mount into every pod."""
    pod_labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] | None = None
    """Additional labels of the pods, except labels of Kubernetes, JobSet, Kueue and this operator."""
    pod_annotations: (
        Annotated[dict[LabelKey, Annotated[str, StringConstraints(max_length=2048)]], Field(max_length=32)] | None
    ) = None
    """More annotations of the pods, with the same exceptions."""
    checkpoint_dir: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """Where checkpoints live: gs://BUCKET/PATH, or an absolute path on a volume that all hosts share."""
    suspend: Annotated[bool, Change.RUNNING] = False
    """True stops the job after a save and releases its machines and quota; false starts it again. Default false."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0, le=31_536_000), Change.RUNNING] = None
    """Seconds after the end until the JobSet and its pods are deleted. Default: never. The job and its status stay."""
    active_deadline_seconds: Annotated[int | None, Field(ge=1, le=31_536_000), Change.RUNNING] = None
    """Seconds from the first start, suspension included, after which the job is ended as Failed. Default: none."""
    restarts: Annotated[Restarts, Change.RUNNING] = Restarts()
    """Budget of restarts."""
    in_place_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """Restarts in the same pods after a crash. After the loss of a pod, only that pod is replaced. When they are used
    up, the next restart replaces all pods. Default 0."""
    retry: Annotated[int, Field(ge=0, le=1_000_000), Change.RAISED] = 0
    """Raise this number to start a job that has ended again, from its last checkpoint. Default 0."""
    queue: QueueName | None = None
    """Kueue LocalQueue that admits the job. Default: none, pods are created at once."""
    managed_by: Annotated[
        Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=MANAGER_PATTERN)] | None, Change.NEVER
    ] = None
    """Controller that runs the job: tpujob.dev/operator (the default), kueue.x-k8s.io/multikueue, which chooses one of
    several clusters, or another DOMAIN/PATH of at most 63 characters."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods. Default: the cluster's."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the pods, for Workload Identity; no token is mounted. Default: default."""
    capacity: Capacity | None = None
    """Spot, reserved or flex-start machines."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] | None = None
    """More node labels that the machines must have."""
    placement: Placement | None = None
    """Where in the cluster the slices lie. Default: one node pool for each multi-host slice."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] | None = None
    """More node taints to ignore."""
    startup_seconds: Annotated[int, Field(ge=10, le=86400)] = 600
    """Seconds that each process waits at start for all others, and later for one in a new pod. Default 600."""
    grace_period_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """Seconds between being asked to stop and being killed; a save must fit. Default 60; spot machines give 15."""
    silence_seconds: Annotated[int | None, Field(ge=10, le=604_800)] = None
    """Seconds without output after which a process of `command` counts as hung and ends with exit code 79, a crash.
    Every process must print more often, also while it compiles. Default: none. The trainer has its own watchdog."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When images are pulled. Default: the operator's setting, else Kubernetes' own rule."""
    image_pull_secrets: Annotated[list[LocalObject], Field(max_length=16)] | None = None
    """Secrets with the credentials of image registries."""
    resources: Resources | None = None
    """Processor, memory and disk of every pod's main container."""


def launcher_serves_account(spec: Spec) -> bool:
    """Whether launcher 0 of a job serves the account of restarts in place; the spec need not be valid.

    The trainer includes the account in its report; another `command` may serve no report.
    """
    return spec.in_place_restarts > 0 and spec.trainer is None and spec.workers is None
