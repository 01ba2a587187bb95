"""The fields of the `trainer` block.

A preset, data, and tokens or steps define a full run; the rest has defaults or is derived (`resolve`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from tpujob_contract.corpus_tasks import CorpusTask
from tpujob_contract.field_rules import broken_rules
from tpujob_trainer.config.rules import EVALUATION_LOSS, RULES
from tpujob_trainer.corpus.extract.config import EmbedConfig, ExtractConfig, GenerateConfig, ScoreConfig
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.distributed.exit.watchdog import WatchdogConfig
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.mesh.choice import MeshConfig
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.from_mapping import Range, parse
from tpujob_trainer.values.references import require_reference

BLOCK = "spec.trainer"
"""The path of the block in the resource; every message about it begins with it."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer, and the learning rate over the run: a linear warm-up, and a decay."""

    name: Literal["adamw", "lion", "adafactor", "muon"] = "adamw"
    """adamw (two moments), lion (one moment; wants a third of the learning rate or less), adafactor (a row and a
    column for each matrix), or muon (one moment, orthogonalised updates of the layers' matrices; embeddings, norms
    and the output by adamw)."""
    schedule: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    """How the learning rate falls after the warm-up: in a half cosine, in a line, not until decayFraction of the
    steps are left and then in a line (wsd), or not at all."""
    decay_fraction: Annotated[float, Range(0.001, 1)] = 0.2
    """Part of the steps in which a wsd schedule falls, at the end."""
    ema_decay: Annotated[float, Range(0.1, 0.999999)] | None = None
    """Keep a running average of the weights that takes 1 - emaDecay of the new ones at each step; saved with the
    checkpoint, as large as the weights. Default: none."""

    learning_rate: Annotated[float, Range(1e-9, 10)] | None = None
    """Peak learning rate. Default: the preset's, else 3e-4."""
    warmup_steps: Annotated[int, Range(0, 1e9)] | None = None
    """Steps from zero to the peak; less than steps. Default: a tenth of the steps, at most 2000."""
    final_learning_rate_fraction: Annotated[float, Range(0, 1)] = 0.1
    """Learning rate at the last step, as a part of the peak."""
    weight_decay: Annotated[float, Range(0, 1)] = 0.1
    """Decoupled decay of matrices; norms have none."""
    beta1: Annotated[float, Range(0, 0.99999)] = 0.9
    """Decay of the first moment."""
    beta2: Annotated[float, Range(0, 0.99999)] = 0.95
    """Decay of the second moment."""
    epsilon: Annotated[float, Range(1e-20, 1e-2)] = 1e-8
    """Added to the root of the second moment."""
    clip_norm: Annotated[float, Range(1e-6, 1e6)] = 1.0
    """Gradients of a larger global norm are scaled down to it."""
    custom: str | None = None
    """An optimizer of your own, as module:name: a function of the learning rate's schedule and arguments that gives
    an optax transformation. name, weightDecay, beta1, beta2 and epsilon say nothing then."""
    arguments: Mapping[str, Any] | None = None
    """What the function of custom is called with, beside the schedule."""

    def __post_init__(self) -> None:
        if self.custom is not None:
            require_reference(self.custom, "custom")
        elif self.arguments is not None:
            raise ValueError(
                "arguments: are those of custom, which is missing; name a function there, or leave them out"
            )


@dataclass(frozen=True, kw_only=True)
class LocalCopiesConfig:
    """Copies of the state on the hosts, between two checkpoints."""

    dir: str
    """Folder in the pods, on a volume that outlives them. Each process writes what its devices hold."""
    every_steps: Annotated[int, Range(1, 1e9)]
    """Copy after every so many steps."""

    def __post_init__(self) -> None:
        if not self.dir.startswith("/"):
            raise ValueError(f"dir: {self.dir!r} is not an absolute path")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When to save and what to keep. The directory is `spec.checkpointDir`."""

    every_steps: Annotated[int, Range(1, 1e9)] | None = None
    """Save after every so many steps. Default: by time alone."""
    every_seconds: Annotated[int, Range(1, 604800)] = 900
    """Save when the last save started this many seconds ago, by the clock of process 0."""
    keep: Annotated[int, Range(1, 10000)] = 3
    """Newest checkpoints to keep; older ones are deleted, unless another rule keeps them."""
    keep_every_steps: Annotated[int, Range(1, 1e9)] | None = None
    """Keep the checkpoints of all steps that are multiples of this. Default: none for this reason."""
    keep_best: Annotated[int, Range(0, 10000)] = 0
    """Keep so many checkpoints with the best bestMetric as well."""
    best_metric: str = EVALUATION_LOSS
    """By what the best checkpoints are chosen: evaluation_loss, or a function of evaluation.metrics. Evaluate at the
    steps that are saved."""
    best_mode: Literal["min", "max"] = "min"
    """Whether the lowest or the highest bestMetric is the best."""
    timeout_seconds: Annotated[int, Range(5, 86400)] = 600
    """A save that is not committed by then has failed. Training never waits for it."""
    fail_after_seconds: Annotated[int, Range(0, 31536000)] = 3600
    """Train on while saves fail, but end the run when one fails and the last commit is so old."""
    adopt: str | None = None
    """namespace/name of another job whose checkpoint directory this one takes over."""
    local: LocalCopiesConfig | None = None
    """Copies on the hosts as well, which are quicker than a bucket. Default: none."""


@dataclass(frozen=True, kw_only=True)
class MetricConfig:
    """A user-defined metric of the evaluation's tokens."""

    name: str
    """module:name of a function from logits [tokens, vocabulary] in float32 and targets [tokens] to a number for each
    token. Its mean over the tokens that count is the metric, called as the function."""

    def __post_init__(self) -> None:
        require_reference(self.name, "name")

    @property
    def function(self) -> str:
        """The name without its module."""
        return self.name.partition(":")[2]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The evaluation of the loss on text that is not trained on."""

    every_steps: Annotated[int, Range(1, 1e9)]
    """Evaluate after every so many steps, and after the last one."""
    batches: Annotated[int, Range(1, 1000000)] = 16
    """Global batches of each evaluation, the same ones each time."""
    data: DataConfig | None = None
    """The text; its tokenizer is always that of the training. Default: the training's own text, and the loss then says
    nothing about text that was not seen."""
    average: bool = False
    """Evaluate the running average of the weights (optimizer.emaDecay)."""
    metrics: tuple[MetricConfig, ...] = ()
    """Functions of your own beside the loss; checkpoint.bestMetric may name one. Default: none."""

    def __post_init__(self) -> None:
        names = [metric.function for metric in self.metrics]
        for number, name in enumerate(names):
            if name in ("loss", EVALUATION_LOSS, *names[:number]):
                raise ValueError(
                    f"metrics[{number}].name: the metric {name!r} is there already; give the function another name"
                )


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """Text that the model generates for the log, the report and samples.jsonl in the checkpoint directory."""

    one_of: ClassVar[tuple[str, ...]] = ("prompt", "prompts")
    """Keys of which one is required."""
    prompt: str | None = None
    """What the text begins with."""
    prompts: tuple[str, ...] | None = None
    """What several texts begin with; one is written after the other."""
    every_steps: Annotated[int, Range(1, 1e9)] | None = None
    """Write one after every so many steps as well. Default: by the finished model only."""
    tokens: Annotated[int, Range(1, 4096)] = 64
    """Tokens to generate; the prompt and they must fit into sequenceLength."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these, or with a token that ends it: the tokenizer's, and those that
    generation_config.json of model.from names."""
    chat: bool | None = None
    """Prompts are turns of a user, which the chat template writes, and the model answers. Default: whether the data are
    conversations."""
    system: str | None = None
    """With chat: the system's message before each prompt."""
    temperature: Annotated[float, Range(0, 10)] = 0.8
    """0 takes the likeliest token each time; larger is more varied."""

    def __post_init__(self) -> None:
        if (self.prompt is None) == (self.prompts is None):
            raise ValueError(
                "prompt: required, and missing; or prompts" if self.prompt is None else "prompts: excludes prompt"
            )
        if self.system is not None and self.chat is False:
            raise ValueError("system: goes with chat, which is false; leave one of them out")

    @property
    def all_prompts(self) -> tuple[str, ...]:
        """All prompts, in the order of the configuration."""
        return self.prompts or (self.prompt or "",)


@dataclass(frozen=True, kw_only=True)
class CallbackConfig:
    """A user-defined object that observes the model during training."""

    name: str
    """module:Name of a class. An object of it is called on all processes with the step, the weights and the metrics
    of the step before, and may return numbers for the trackers."""
    arguments: Mapping[str, Any] | None = None
    """What the class is called with."""
    every_steps: Annotated[int, Range(1, 1e9)] | None = None
    """Call it after every so many steps, and after the last one. Default: after the last one only."""

    def __post_init__(self) -> None:
        require_reference(self.name, "name")


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """The finished model as config.json and safetensors, which transformers and model.from read.

    For model.custom: safetensors with the paths of its parameters as names, and model.json with its arguments and the
    step.
    """

    directory: str | None = None
    """Where they are written, local or a bucket's address. Default: export in the checkpoint directory."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Type of the stored weights."""
    average: bool = False
    """Write the running average of the weights (optimizer.emaDecay)."""
    merged: bool = False
    """With lora: write the whole model with the adapters added, instead of the adapters."""


@dataclass(frozen=True, kw_only=True)
class NonFiniteConfig:
    """The handling of steps whose loss or gradient is not finite. They never change a weight."""

    max_skips: Annotated[int, Range(0, 1e9)] = 10
    """Such steps that are allowed within windowSteps. After more of them the run goes back to a checkpoint from before
    the first, and leaves out their batches."""
    window_steps: Annotated[int, Range(1, 1e9)] = 1000
    """The steps in which they are counted."""
    rollbacks: Annotated[int, Range(0, 100)] = 1
    """How often the run may go back, in all its attempts; after that it ends as diverged (exit code 76)."""


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Weights & Biases. Login and mode are in the environment: WANDB_API_KEY, WANDB_MODE. Needs the package wandb."""

    project: str
    """Where the run is shown."""
    entity: str | None = None
    """User or team. Default: that of the login."""
    name: str | None = None
    """Of the run. Default: chosen by the service."""


@dataclass(frozen=True, kw_only=True)
class TensorboardConfig:
    """TensorBoard event files."""

    directory: str | None = None
    """Where they are written, local or a bucket's address. Default: tensorboard in the checkpoint directory."""


@dataclass(frozen=True, kw_only=True)
class TrackersConfig:
    """Experiment trackers. Only process 0 uses them; a failing tracker never stops the training."""

    wandb: WandbConfig | None = None
    """Weights & Biases: one run for all attempts. Default: not used."""
    tensorboard: TensorboardConfig | None = None
    """TensorBoard. Default: not used."""


@dataclass(frozen=True, kw_only=True)
class ProfileConfig:
    """Profiles that each process writes by itself, into the folder profiles of the checkpoint directory."""

    memory_every_steps: Annotated[int, Range(1, 1e9)]
    """Write what fills the devices' memory after every so many steps, and after the last one; for pprof."""
    keep: Annotated[int, Range(1, 10000)] = 10
    """Newest of these profiles that each process keeps."""


@dataclass(frozen=True, kw_only=True)
class PreflightConfig:
    """Checks of the hosts before the first step; they take about a second."""

    collectives: bool = True
    """One all-reduce over all devices, its result checked: a host that is wrong is named and ends the run, one that is
    slow, whose clock differs, or that is short of memory or disk is named in the log."""
    bandwidth: bool = False
    """Measure also how fast all devices reduce 64 MiB each, beside what the chip's links give."""


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """The task for a model and text. For pretraining, either tokens or steps gives the length of the run."""

    task: Literal["pretrain", CorpusTask, "probe"] = "pretrain"
    """pretrain; or what independent workers write of each row of the corpus into the checkpoint directory: extract
    (activations of layers), score (loss and perplexity), embed (one vector), generate (a continuation); or probe, which
    only tries that directory, as tpujob doctor --probe does."""
    model: ModelConfig
    """The model."""
    data: DataConfig
    """The text, and how it becomes tokens."""
    tokens: Annotated[int, Range(1, 1e16)] | None = None
    """Tokens to train on, rounded up to whole batches. Excludes steps."""
    steps: Annotated[int, Range(1, 1e9)] | None = None
    """Optimizer steps to train for. Excludes tokens."""
    sequence_length: Annotated[int, Range(2, 1048576)] | None = None
    """Tokens of a row. Default: the preset's, else 2048."""
    batch_size: Annotated[int, Range(1, 1048576)] | None = None
    """Rows of a global batch, over all devices; a multiple of their number. Default: the preset's tokens per batch."""
    mesh: MeshConfig = field(default_factory=MeshConfig)
    """How model and batch are divided over the devices of a slice. Default: chosen, and the reason logged."""
    gradient_accumulation: Annotated[int, Range(1, 4096)] = 1
    """Parts in which a batch is computed one after the other, to save memory; batchSize stays the same."""
    z_loss: Annotated[float, Range(0, 1)] = 0.0
    """Factor of the squared logarithm of the softmax's denominator in what is minimised; 1e-4 keeps logits from
    drifting. The loss that is shown leaves it out."""
    router_balance_loss: Annotated[float, Range(0, 10)] = 0.0
    """Factor of the load-balancing loss of a mixture's routers in what is minimised, the mean over layers; 0.01 keeps
    tokens from crowding into a few experts. The loss that is shown leaves it out."""
    router_z_loss: Annotated[float, Range(0, 10)] = 0.0
    """Factor of the squared logarithm of the routers' softmax denominator in what is minimised; 1e-3 keeps their logits
    small. The loss that is shown leaves it out."""
    lora: LoraConfig | None = None
    """Train low-rank adapters and leave the weights of model.from as they are. Default: all weights are trained."""
    loss: str | None = None
    """A loss of your own, as module:name: a function from logits [tokens, vocabulary] and targets [tokens] to the loss
    of each token. Default: cross-entropy."""
    seed: Annotated[int, Range(0, 2147483647)] = 0
    """Of the initial weights, of the order of the data and of the sample."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer and its schedule."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """When to save."""
    non_finite: NonFiniteConfig = field(default_factory=NonFiniteConfig)
    """Steps whose loss or gradient is not finite."""
    evaluation: EvaluationConfig | None = None
    """Evaluation in training. Default: none."""
    sample: SampleConfig | None = None
    """Text to generate. Default: none."""
    callbacks: tuple[CallbackConfig, ...] = ()
    """Objects of your own, called between two steps. Default: none."""
    export: ExportConfig | None = None
    """Write the finished model for transformers. Default: the checkpoint alone."""
    extract: ExtractConfig | None = None
    """What is kept of the model's activations; for task extract."""
    score: ScoreConfig | None = None
    """What is written of each row's loss; for task score. Default: all of its fields' defaults."""
    embed: EmbedConfig | None = None
    """How a row becomes one vector; for task embed. Default: all of its fields' defaults."""
    generate: GenerateConfig | None = None
    """How rows are continued; for task generate. Default: all of its fields' defaults."""
    trackers: TrackersConfig | None = None
    """Experiment trackers. Default: none."""
    profile: ProfileConfig | None = None
    """Profiles in training. Default: those that tpujob profile asks for."""
    preflight: PreflightConfig = field(default_factory=PreflightConfig)
    """What is checked of the hosts before the first step."""
    compile_cache: bool = True
    """Keep compiled programs in the checkpoint directory, for faster restarts. Who can write there can run code in the
    trainer, so turn it off where others may."""
    log_every_steps: Annotated[int, Range(1, 1e9)] = 10
    """Steps between two lines of progress in the log of process 0."""
    heartbeat_seconds: Annotated[int, Range(5, 3600)] = 30
    """Silence after which a process counts as lost, and all others end, naming it. One that is killed is noticed at
    once; this is for those that hang with their machine."""
    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    """When a run that makes no progress is ended."""

    def __post_init__(self) -> None:
        if self.task == "pretrain" and self.loss is not None:
            require_reference(self.loss, "loss")
        known = [EVALUATION_LOSS, *(metric.function for metric in (self.evaluation.metrics if self.evaluation else ()))]
        if self.checkpoint.best_metric not in known:
            raise ValueError(
                f"checkpoint.bestMetric: {self.checkpoint.best_metric!r} is not evaluated; write {', '.join(known)}, "
                "or name its function in evaluation.metrics"
            )


def parse_config(block: Mapping[str, Any]) -> TrainerConfig:
    """The configuration that a `trainer` block describes.

    Raises:
        ConfigurationError: one line about the first field at fault.
    """
    sentences = [f"{BLOCK}.{sentence}" for sentence in broken_rules(block, RULES)]
    try:
        config = parse(TrainerConfig, block, BLOCK)
    except ConfigurationError as error:
        # For fields that contradict each other, all readers of the block report the same sentence.
        if not sentences or error.__cause__ is None:
            raise
        field = str(error).partition(": ")[0]
        same = (sentence for sentence in sentences if sentence.partition(": ")[0] == field)
        raise ConfigurationError(next(same, sentences[0])) from error
    if sentences:
        raise ConfigurationError(sentences[0])
    return config


def load_config(text: str | None) -> TrainerConfig:
    """The configuration in TPUJOB_CONFIG, a `trainer` block as JSON.

    Raises:
        ConfigurationError: there is none, it is not JSON, or a field is wrong.
    """
    if not text:
        raise ConfigurationError(
            "TPUJOB_CONFIG: not set; it holds the trainer block as JSON, as `tpujob run` writes it"
        )
    try:
        block = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"TPUJOB_CONFIG: not JSON ({error}); it holds the trainer block") from error
    return parse_config(block)


def configuration_hash(text: str) -> str:
    """A hash that all processes of a run share, whatever the order of keys: sixteen hexadecimal digits."""
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
