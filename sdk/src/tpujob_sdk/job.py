"""The interface of a training loop to its job."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_sdk.agreed_calls import AgreedCalls
from tpujob_sdk.lanes import Lanes
from tpujob_sdk.options import Options
from tpujob_sdk.place import Place, own_part
from tpujob_sdk.samples import Samples
from tpujob_sdk.saving import Checkpoints
from tpujob_sdk.sharding import fsdp_shardings, placed
from tpujob_sdk.stopping import AgreedStop
from tpujob_trainer.config.schema import TrackersConfig
from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.session.checkpointing import Checkpointing
from tpujob_trainer.session.session import Session
from tpujob_trainer.session.trackers import make_trackers
from tpujob_trainer.telemetry.trackers import Trackers
from tpujob_trainer.values.errors import ConfigurationError, TrainerError
from tpujob_trainer.values.from_mapping import parse

logger = logging.getLogger(__name__)

AXIS = "data"
"""Axis of the default mesh, for a loop without its own."""

SPLIT, TRACKERS = "job.split", "job.trackers"
TRACKERS_SECONDS = 30.0
"""Time for trackers to send what is left at the end of the loop."""

OnReport = Callable[[int, Mapping[str, float]], None]
"""Called on process 0 with the step and the reported values."""


class Job:
    """The argument of the loop that `run` calls. Call its methods in the main thread only."""

    def __init__(self, session: Session, place: Place, options: Options) -> None:
        """`run` makes the object once all processes have started."""
        self.place = place
        self.was_stopped = False
        """Whether `stop_requested` has returned True."""
        self.on_report: list[OnReport] = []
        self._session = session
        self._options = options
        self._stop = AgreedStop(session.stop, session.runtime.coordination)
        self._calls = AgreedCalls(session.runtime.coordination)
        self._checkpoints: list[Checkpoints] = []
        self._lanes: list[Lanes | Samples[Any]] = []
        self._trackers: list[Trackers] = []
        self._splits = 0
        self._reported_at: float | None = None

    @property
    def is_lead(self) -> bool:
        """Whether this is process 0."""
        return self.place.is_lead

    @property
    def mesh(self) -> Mesh:
        """All devices of all processes along one axis, `data`."""
        return jax.make_mesh((jax.device_count(),), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))

    def replicate[T](self, tree: T) -> T:
        """The same values as arrays on all devices of all processes; all processes must pass equal values."""
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda leaf: placed(leaf, everywhere), tree)

    def shardings(self, tree: Any, mesh: Mesh | None = None) -> Any:
        """The FSDP shardings of arrays: each is divided along its longest dimension that the number of devices divides.

        Arrays without such a dimension, such as step counters, are replicated. With
        `jax.jit(init, out_shardings=job.shardings(jax.eval_shape(init)))()` a state is created sharded, and is never
        whole on any device; the same shardings as `out_shardings` of the step keep it sharded.

        Args:
            tree: Arrays, or the result of `jax.eval_shape`.
            mesh: Of all devices; None: that of the job.
        """
        return fsdp_shardings(tree, mesh or self.mesh)

    def shard[T](self, tree: T, mesh: Mesh | None = None) -> T:
        """The same values, divided over all devices as in `shardings`; every process passes the whole arrays.

        Args:
            tree: Arrays that fit into the memory of each host.
            mesh: Of all devices; None: that of the job.
        """
        return jax.tree.map(placed, tree, self.shardings(tree, mesh))

    def stop_requested(self) -> bool:
        """Whether to leave the loop; the same answer on all processes. Each process must call this once per step.

        Before the first call, and after the last save is committed, a stop request ends the process at once.
        """
        self._session.stop.entered_loop()
        self._calls.looked()
        self.was_stopped = self._stop.look() or self.was_stopped
        return self.was_stopped

    def report(self, *, step: int, steps: int | None = None, tokens: int = 0, **values: Any) -> None:
        """Reports the run's progress to the operator and Prometheus; every process must call this after each step.

        Args:
            step: Steps done.
            steps: Of the whole run.
            tokens: Of this step, over all processes.
            values: `loss`, `gradient_norm`, `evaluation_loss`, `evaluation_step`; numbers or arrays of one element. The
                call waits for arrays.

        Raises:
            KeyError: a report has no value of this name.
            TrainerError: saves have failed for too long.
        """
        self._calls.reported(step)
        numbers = {name: float(value) for name, value in values.items()}
        report, metrics, now = self._session.report, self._session.metrics, time.monotonic()
        if report.phase != "training":
            report.enter("training")
        if self._reported_at is not None:
            seconds = now - self._reported_at
            metrics.step_seconds.observe(seconds)
            if tokens:
                report.update(tokens_per_second=tokens / max(seconds, 1e-9))
        self._reported_at = now
        metrics.tokens.inc(tokens)
        metrics.heartbeat()
        report.update(step=step, **({"steps": steps} if steps is not None else {}), **numbers)
        for checkpoints in self._checkpoints:
            checkpoints.poll(step)
        if self.is_lead:
            for callback in self.on_report:
                callback(step, numbers)

    def lanes(
        self,
        data: str | Mapping[str, Any],
        *,
        batch_size: int,
        sequence_length: int,
        seed: int = 0,
        mesh: Mesh | None = None,
        rows: PartitionSpec | None = None,
    ) -> Lanes:
        """Batches of tokens, which are the same on any number of processes and after a restart.

        Args:
            data: A path of text, or a mapping with the fields of `spec.trainer.data`: `path`, `tokenizer`,
                `textColumn`, `template`, …
            batch_size: Rows of a global batch; a multiple of the devices along `rows`.
            sequence_length: Tokens of a row.
            seed: Of the order.
            mesh: Of all devices. Default: `Job.mesh`.
            rows: How rows are divided over the mesh. Default: along its first axis.

        Raises:
            ConfigurationError: there is no such data, or it differs from that of the checkpoints.
        """
        self._calls.meet("job.lanes(…)")
        mesh, rows = self._division(mesh, rows)
        lanes = Lanes.of(
            data,
            batch_size=batch_size,
            sequence_length=sequence_length,
            seed=seed,
            mesh=mesh,
            rows=rows,
            session=self._session,
        )
        lanes.on_batch = self._calls.took_batch
        self._lanes.append(lanes)
        return lanes

    def samples(
        self,
        path: str | Sequence[str],
        *,
        batch_size: int,
        seed: int = 0,
        mesh: Mesh | None = None,
        rows: PartitionSpec | None = None,
    ) -> Samples[Sample]:
        """Batches of raw samples, including images, which are the same on any number of processes and after a restart.

        Args:
            path: Webdataset tars: a path or a pattern, local or in a bucket, or several.
            batch_size: Samples of a global batch; a multiple of the devices along `rows`.
            seed: Of the order.
            mesh: Of all devices. Default: `Job.mesh`.
            rows: How samples are divided over the mesh. Default: along its first axis.

        Raises:
            ConfigurationError: there are no such tars, or they differ from those of the checkpoints.
        """
        self._calls.meet("job.samples(…)")
        mesh, rows = self._division(mesh, rows)
        samples: Samples[Sample] = Samples(
            path,
            batch_size=batch_size,
            seed=seed,
            mesh=mesh,
            rows=rows,
            session=self._session,
        )
        samples.on_batch = self._calls.took_batch
        self._lanes.append(samples)
        return samples

    def split[T](self, items: Iterable[T]) -> list[T]:
        """The items of this process, for your own loader: with n processes every n-th item, each on one process.

        Items are tars of a webdataset, files, or indexes of a data set. The position in your own loader is not saved,
        and all processes must take the same number of batches: let the loader start over at its end.

        Args:
            items: The same items in the same order on all processes; their `repr` is compared.

        Raises:
            ConfigurationError: a process passes different items, or there are fewer items than processes.
        """
        self._calls.meet(SPLIT)
        self._splits += 1
        return own_part(list(items), self._session.runtime.coordination, f"split/{self._splits}")

    def _division(self, mesh: Mesh | None, rows: PartitionSpec | None) -> tuple[Mesh, PartitionSpec]:
        """The mesh and the partition of rows over it, with defaults for those that the loop did not choose."""
        mesh = mesh or self.mesh
        return mesh, rows if rows is not None else PartitionSpec(mesh.axis_names[0])

    def checkpoints(self, lanes: Lanes | Samples[Any] | None = None) -> Checkpoints:
        """The checkpoints of the job's checkpoint directory; they include the position of lanes or samples."""
        described = lanes.described if lanes is not None else {}
        checkpointing = Checkpointing(self._options, described, self._session)
        made = Checkpoints(checkpointing, lanes, self._calls)
        self._checkpoints.append(made)
        return made

    def trackers(
        self,
        *,
        first_step: int = 0,
        config: Mapping[str, Any] | None = None,
        wandb: Mapping[str, Any] | None = None,
        tensorboard: Mapping[str, Any] | None = None,
    ) -> Trackers:
        """The trackers of the run, for numbers and texts; all processes must call this once, only process 0 uses them.

        `scalars(step, {"train/loss": …})` and `text(step, prompt, text)` return at once, and never stop the training.
        With a checkpoint directory, they are also written to metrics.csv and samples.jsonl, for `tpujob report`.

        Args:
            first_step: Steps done before this attempt: later steps that an earlier attempt recorded are replaced.
            config: Shown with the run; JSON values.
            wandb: As `spec.trainer.trackers.wandb`: `project`, `entity`, `name`. One run for all attempts.
            tensorboard: As `spec.trainer.trackers.tensorboard`: `directory`.

        Raises:
            ConfigurationError: this was called before, a field is wrong, or a package is not installed on process 0.
        """
        self._calls.meet(TRACKERS)
        if self._trackers:
            raise ConfigurationError(f"{TRACKERS}: was called before; call it once, and use what it gave")
        blocks = {"wandb": wandb, "tensorboard": tensorboard}
        given = {name: block for name, block in blocks.items() if block is not None}
        made = make_trackers(
            parse(TrackersConfig, given, TRACKERS),
            self._session,
            first_step=first_step,
            summary=dict(config or {}),
            keeps_samples=True,
            field=TRACKERS,
        )
        self._trackers.append(made)
        return made

    def close(self) -> None:
        """Commits the last save and ends the threads; `run` calls this.

        Raises:
            TrainerError: the last state was not saved, and the run was not asked to stop.
        """
        self._calls.meet("the end of the loop")
        for lanes in self._lanes:
            lanes.close()
        for checkpoints in self._checkpoints:
            if checkpoints.finish():
                continue
            if not self.was_stopped:
                raise TrainerError(checkpoints.problem)
            logger.warning("Stopped: %s", checkpoints.problem)
        for trackers in self._trackers:
            trackers.close(TRACKERS_SECONDS)
