"""Pretraining: puts the parts together, restores or begins, trains, and writes a sample."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding

from tpujob_contract import DistributedProcess, ExitCode, environment, ports
from tpujob_trainer import attempts, data, ownership, server, startup
from tpujob_trainer.batches import Assembler, Feed
from tpujob_trainer.checkpoint import Checkpoints, Listener
from tpujob_trainer.checkpoint_steps import Commit
from tpujob_trainer.config import TrainerConfig, configuration_hash
from tpujob_trainer.config_resolved import ResolvedConfig, resolve
from tpujob_trainer.flops import training_flops_per_token
from tpujob_trainer.loop import Loop, checkpoint_tree
from tpujob_trainer.mesh import build_mesh, require_devices
from tpujob_trainer.metrics import Metrics
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import REPLICATED
from tpujob_trainer.optimizer import make_optimizer, make_schedule
from tpujob_trainer.progress import Progress
from tpujob_trainer.report import Phase, Report
from tpujob_trainer.sampling import generate, prompt_tokens
from tpujob_trainer.saving import SaveClock
from tpujob_trainer.startup import Runtime
from tpujob_trainer.stopping import StopRequest
from tpujob_trainer.train_step import TrainState, abstract_state, init_state, make_train_step

logger = logging.getLogger(__name__)

MANIFEST_LIMIT_SECONDS = 3600.0
"""For process 0 to read the footers of all files."""


def run(
    process: DistributedProcess | None, config: TrainerConfig, environ: Mapping[str, str], stop: StopRequest
) -> int:
    """Trains as configured; the exit code of this process.

    Raises:
        TrainerError: of the class whose exit code says why.
    """
    task = _Pretraining.start(process, config, environ, stop)
    code = task.run()
    task.runtime.close()
    if task.claim:
        task.claim.close()
    return code


@dataclasses.dataclass
class _Pretraining:
    """One attempt of a run, once all its processes have met."""

    runtime: Runtime
    config: TrainerConfig
    directory: str | None
    """The checkpoint directory; None: nothing is saved."""
    slices: int
    stop: StopRequest
    report: Report
    metrics: Metrics
    claim: ownership.Claim | None
    attempt: attempts.Attempt | None
    save_seconds: float = 0.0

    @classmethod
    def start(
        cls, process: DistributedProcess | None, config: TrainerConfig, environ: Mapping[str, str], stop: StopRequest
    ) -> _Pretraining:
        started = datetime.datetime.now(datetime.UTC)
        report = Report()
        metrics = Metrics(report)
        port = process.report_port if process else int(environ.get(environment.REPORT_PORT) or ports.REPORT)
        server.serve(report.snapshot, metrics.exposition, host=server.address(environ), port=port)
        runtime = startup.start(
            process,
            heartbeat_seconds=config.heartbeat_seconds,
            configuration_hash=configuration_hash(environ[environment.CONFIG]),
        )
        stop.joined(runtime.coordination)
        if process:
            require_devices(
                num_processes=process.num_processes, chips_per_host=process.chips_per_host, devices=jax.devices()
            )
        directory = environ.get(environment.CHECKPOINT_DIR) or None
        claim, attempt = None, None
        if directory:
            owner = f"{process.namespace}/{process.name}" if process else "local/trainer"
            claim = ownership.claim(directory, owner=owner, adopt=config.checkpoint.adopt, runtime=runtime)
            attempt = attempts.Attempt(
                directory, attempt_id=runtime.attempt_id, started=started, is_lead=runtime.is_lead
            )
        report.update(
            process_id=runtime.process_id,
            processes=runtime.num_processes,
            attempt=runtime.attempt_id,
            checkpoint=directory,
        )
        slices = process.slices if process else 1
        task = cls(runtime, config, directory, slices, stop, report, metrics, claim, attempt)
        stop.at_exit(task.last_words)
        if attempt:
            attempt.write(report.snapshot())
        return task

    def run(self) -> int:
        mesh = build_mesh(slices=self.slices)
        tokenizer = data.load_tokenizer(self.config.data)
        resolved = resolve(
            self.config, num_devices=mesh.size, vocabulary=tokenizer.vocab_size, platform=jax.default_backend()
        )
        self._tell(resolved, mesh)
        prompt = resolved.sample and prompt_tokens(resolved.sample, tokenizer, sequence_length=resolved.sequence_length)
        manifest = self._manifest(resolved)
        plan = data.plan_lanes(manifest, resolved.data, batch_size=resolved.batch_size, seed=resolved.seed)
        model = Model(resolved.model, mesh)
        schedule = make_schedule(resolved.optimizer, steps=resolved.steps)
        optimizer = make_optimizer(resolved.optimizer, schedule)
        train_step = make_train_step(
            model,
            optimizer,
            schedule,
            clip_norm=resolved.optimizer.clip_norm,
            gradient_accumulation=resolved.gradient_accumulation,
        )
        described = data.describe_data(manifest, tokenizer, plan, resolved.sequence_length)
        saver = self._checkpoints(resolved, described)
        state, position = _restore_or_init(saver, model, optimizer, plan, resolved.seed, self.report)
        first = int(np.asarray(state.step))
        if first >= resolved.steps:
            return self._already_complete(first, resolved.steps)
        assembler = Assembler(mesh, resolved.batch_size)
        with data.BatchLoader(
            manifest, tokenizer, plan, resolved.sequence_length, rows=assembler.rows, state=position
        ) as loader:
            loop = Loop(
                train_step=train_step,
                feed=Feed(loader, assembler, loader.state),
                saver=saver,
                config=resolved.checkpoint,
                clock=SaveClock(resolved.checkpoint, decides=self.runtime.is_lead and saver is not None),
                progress=Progress(
                    self.report,
                    self.metrics,
                    steps=resolved.steps,
                    log_every_steps=resolved.log_every_steps,
                    is_lead=self.runtime.is_lead,
                ),
                report=self.report,
                stop=self.stop,
                save_seconds=lambda: self.save_seconds,
            )
            self.report.enter("compiling")
            self.stop.entered_loop()
            ending = loop.run(state, first=first, steps=resolved.steps)
            self.stop.left_loop()
        if not ending.has_finished:
            logger.info("Step %d of %d: stopped as asked", ending.step, resolved.steps)
            return ExitCode.STOPPED
        if resolved.sample and prompt:
            with self.report.during("sampling"):
                self._write_sample(model, ending.state.weights, prompt, resolved, tokenizer)
        if saver:
            saver.close()
        logger.info("Finished: %d steps, %d tokens", ending.step, ending.step * resolved.tokens_per_step)
        return ExitCode.FINISHED

    def last_words(self, code: int, message: str) -> None:
        """The end of the attempt, for the report and the file beside the checkpoint."""
        phases: dict[int, Phase] = {ExitCode.FINISHED: "finished", ExitCode.STOPPED: "stopping"}
        self.report.enter(phases.get(code, "failed"))
        if code != ExitCode.FINISHED:
            self.report.update(message=message)
        if self.attempt:
            self.attempt.write(self.report.snapshot(), exit_code=code)

    def _tell(self, resolved: ResolvedConfig, mesh: Mesh) -> None:
        self.report.update(steps=resolved.steps)
        if not self.runtime.is_lead:
            return
        flops = training_flops_per_token(resolved.model, resolved.sequence_length)
        logger.info("Configuration: %s", resolved.as_json())
        logger.info(
            "Model: %.2f M parameters, %.3g FLOPs for each token; mesh %s; %d steps of %d tokens",
            resolved.model.num_parameters / 1e6,
            flops,
            dict(mesh.shape),
            resolved.steps,
            resolved.tokens_per_step,
        )
        if self.directory is None:
            logger.warning("spec.checkpointDir is not set: this run saves nothing, and cannot be resumed")

    def _manifest(self, resolved: ResolvedConfig) -> data.Manifest:
        """The data's units: made once by process 0 and kept beside the checkpoint, for all processes and attempts."""
        directory = self.directory
        if directory is None:
            return data.make_manifest(resolved.data, batch_size=resolved.batch_size)
        if "://" not in directory:
            directory = str(Path(directory).absolute())

        def make() -> str:
            manifest = data.read_manifest(directory, resolved.data)
            if manifest is None:
                manifest = data.make_manifest(resolved.data, batch_size=resolved.batch_size)
                data.write_manifest(manifest, directory)
            else:
                data.verify_unchanged(manifest, resolved.data)
            return manifest.fingerprint

        fingerprint = self.runtime.coordination.lead_decides("manifest", make, limit_seconds=MANIFEST_LIMIT_SECONDS)
        manifest = data.read_manifest(directory, resolved.data)
        assert manifest is not None
        assert manifest.fingerprint == fingerprint
        return manifest

    def _checkpoints(self, resolved: ResolvedConfig, described: Mapping[str, str | int]) -> Checkpoints | None:
        if self.directory is None:
            return None

        def committed(commit: Commit, seconds: float) -> None:
            self.save_seconds = seconds
            self.metrics.checkpoint_commit_seconds.observe(seconds)
            self.report.update(committed_step=commit.step, committed_time=commit.time)
            if self.runtime.is_lead:
                logger.info("Committed the checkpoint of step %d after %.1f s", commit.step, seconds)

        return Checkpoints(
            self.directory,
            keep=resolved.checkpoint.keep,
            runtime=self.runtime,
            metadata={
                "configuration": json.loads(resolved.as_json()),
                "data": dict(described),
                "processes": self.runtime.num_processes,
            },
            listener=Listener(
                saved=lambda step, seconds: self.metrics.checkpoint_blocking_seconds.observe(seconds),
                committed=committed,
                failed=lambda step, why: self.metrics.checkpoint_failures.inc(),
            ),
        )

    def _already_complete(self, step: int, steps: int) -> int:
        message = (
            f"complete: the checkpoint has {step} of {steps} steps, nothing is left to do; "
            "to train on, raise spec.trainer.steps or tokens"
        )
        logger.info("%s", message)
        self.report.update(step=step, message=message)
        return ExitCode.FINISHED

    def _write_sample(
        self,
        model: Model,
        weights: Weights,
        prompt: list[int],
        resolved: ResolvedConfig,
        tokenizer: data.Tokenizer,
    ) -> None:
        assert resolved.sample is not None
        tokens = generate(model, weights, prompt=prompt, config=resolved.sample, seed=resolved.seed, eos=tokenizer.eos)
        text = resolved.sample.prompt + tokenizer.decode(tokens)
        self.report.update(sample=text)
        if self.runtime.is_lead:
            logger.info("Sample: %s", json.dumps(text, ensure_ascii=False))


def _restore_or_init(
    saver: Checkpoints | None,
    model: Model,
    optimizer: optax.GradientTransformation,
    plan: data.LanePlan,
    seed: int,
    report: Report,
) -> tuple[TrainState, np.ndarray | None]:
    """The state to train from, and the data position that belongs to it (None: the beginning).

    The newest checkpoint that all processes can read; where there is none at all, fresh weights, made on the devices
    that keep them.
    """
    if saver:
        report.enter("restoring")
        position = jax.ShapeDtypeStruct(
            data.state_shape(plan), np.int32, sharding=NamedSharding(model.mesh, REPLICATED)
        )
        restored = saver.restore(checkpoint_tree(abstract_state(model, optimizer), position))
        if restored is not None:
            step, tree = restored
            report.update(step=step, restored_from=step, committed_step=step, committed_time=saver.committed_time)
            logger.info("Restored the checkpoint of step %d", step)
            state = TrainState(step=tree["step"], weights=tree["weights"], optimizer=tree["optimizer"])
            return state, np.asarray(tree["data"])
    report.enter("compiling")
    return init_state(model, optimizer, seed), None
