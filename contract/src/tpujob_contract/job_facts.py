"""The question of the command line about a job that has not started, and the facts that the trainer answers.

Both travel as JSON between two programs of one installation; `tpujob_trainer.tasks.job_facts` answers.
"""

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union


@dataclass(frozen=True)
class Place:
    """Where a job runs."""

    devices: int
    """JAX devices of all processes."""
    slices: int
    platform: str
    """JAX platform: cpu or tpu."""
    devices_here: int
    """JAX devices of the processes on this machine."""
    generation: Optional[str] = None
    """Of TPU, as in spec.accelerator; None: no TPU."""


@dataclass(frozen=True)
class Question:
    """A job with a trainer block, and what to find out about it."""

    trainer: Dict[str, Any]
    """As the user wrote it."""
    checkpoint_dir: Optional[str]
    owner: str
    """The job as "namespace/name"."""
    place: Place
    is_run: bool
    """Whether all processes of the job run on this machine, with its storage and memory."""
    has_all_packages: bool
    """Whether the launchers install no packages, so that imports must work on this machine."""
    has_figures: bool
    """Whether to calculate the figures."""
    forecast_workers: Optional[int]
    """Number of independent workers, to forecast from some rows of the data; None: without a forecast."""


@dataclass(frozen=True)
class Problem:
    """What would end a run."""

    message: str
    exit_code: int


@dataclass(frozen=True)
class TrainingFigures:
    """A training run by arithmetic."""

    parameters: int
    vocabulary: int
    vocabulary_is_known: bool
    steps: int
    batch_size: int
    sequence_length: int
    tokens: int
    flops: int
    state_bytes_per_device: float
    """Of weights and optimizer."""
    warmup_steps: int
    mesh: str
    """The axes, and why they were chosen."""
    learning_rate: float


@dataclass(frozen=True)
class ExtractionBounds:
    """The most that an extraction writes and computes; in all only if `extract.rows` is set, otherwise per row."""

    parameters: int
    weight_bytes: int
    """In the compute dtype, as a worker on TPUs holds them."""
    sites: int
    sequence_length: int
    rows: Optional[int]
    row_bytes: int
    tokens: Optional[int]
    value_bytes: Optional[int]
    flops: Optional[int]


@dataclass(frozen=True)
class TrainingForecast:
    """What a training run reads and writes, from some rows of its data."""

    rows: Optional[int]
    is_exact: bool
    """Whether all rows were counted."""
    skipped: Dict[str, int]
    """Sampled rows that cannot be used, by cause."""
    rows_sampled: int
    tokens_in_data: Optional[int]
    passes: Optional[float]
    """Over the data."""
    read_bytes: Optional[int]
    parameters: int
    vocabulary: int
    checkpoint_bytes: int
    checkpoints: int
    output_bytes: int
    scratch_bytes_per_host: int


@dataclass(frozen=True)
class ExtractionForecast:
    """What an extraction reads, computes and writes, from some rows of its data."""

    rows: int
    rows_used: int
    rows_sampled: int
    tokens: int
    value_bytes: int
    """Before compression."""
    output_bytes: int
    output_bytes_per_worker: int
    scratch_bytes_per_host: int
    flops: int
    parameters: int
    weight_bytes: int
    """In the compute dtype, as a worker on TPUs holds them."""


@dataclass(frozen=True)
class Facts:
    """The answer. Of the figures, at most one field is set."""

    problems: Tuple[Problem, ...] = ()
    warnings: Tuple[str, ...] = ()
    training: Optional[TrainingFigures] = None
    extraction: Optional[ExtractionBounds] = None
    effective: Optional[Dict[str, Any]] = None
    """The trainer block of a training run, with defaults and derived values."""
    unknown: Optional[str] = None
    """Why the shape of `model.from` cannot be read from this machine."""
    missing_module: Optional[str] = None
    """Which module of `model.custom` is not on this machine."""
    forecast: Union[TrainingForecast, ExtractionForecast, None] = None
