"""Independent workers as processes of this machine, started again when they die, as Kubernetes does it."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.multiprocess.processes import AT_START, PATIENCE_SECONDS, REPOSITORY
from tests.quick_compiling import XLA_FLAGS
from tools.localcluster.processes import free_ports
from tpujob.local import dies_with_parent

POLL_SECONDS = 0.05


@dataclass
class Process:
    """One life of a worker."""

    popen: subprocess.Popen
    log_file: Path
    is_frozen: bool = False

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def works(self) -> bool:
        """Whether it has begun with its units."""
        return self.popen.poll() is None and "Units: " in self.log

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.popen.pid, number)


@dataclass
class Fleet:
    """All workers of a job, and all their lives."""

    folder: Path
    directory: str
    config: Mapping[str, Any]
    environment_of: Callable[[int], Mapping[str, str]] = lambda worker: {}
    workers: int = 0
    lives: dict[int, list[Process]] = field(default_factory=dict)
    killed: int = 0

    def start(self, worker: int) -> Process:
        """One more life of a worker."""
        lives = self.lives.setdefault(worker, [])
        log_file = self.folder / f"{worker}.{len(lives)}.log"
        self.folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "PYTHONPATH": str(AT_START),
            "XLA_FLAGS": XLA_FLAGS,
            "TPUJOB_NAME": "features",
            "TPUJOB_NAMESPACE": "test",
            "TPUJOB_INCARNATION": "1",
            "TPUJOB_ATTEMPT": "0",
            "TPUJOB_WORKER": str(worker),
            "TPUJOB_WORKERS": str(max(self.workers, worker + 1)),
            "TPUJOB_CHIPS_PER_HOST": "1",
            "TPUJOB_STARTUP_SECONDS": "300",
            "TPUJOB_GRACE_SECONDS": "20",
            "TPUJOB_CHECKPOINT_DIR": self.directory,
            "TPUJOB_CONFIG": json.dumps(self.config),
            "TPUJOB_REPORT_PORT": str(port),
            "TPUJOB_TERMINATION_LOG": str(log_file.with_suffix(".termination")),
            **self.environment_of(worker),
        }
        command = [*dies_with_parent.launcher(signal.SIGKILL), sys.executable]
        with log_file.open("wb") as log:
            popen = subprocess.Popen(
                [*command, "-m", "tpujob_trainer"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        lives.append(Process(popen, log_file))
        return lives[-1]

    def start_all(self, workers: int) -> None:
        self.workers = workers
        for worker in range(workers):
            self.start(worker)

    def now(self) -> dict[int, Process]:
        """The present life of each worker."""
        return {worker: lives[-1] for worker, lives in self.lives.items()}

    def working(self) -> list[Process]:
        return [process for process in self.now().values() if process.works and not process.is_frozen]

    def kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)
        process.popen.wait()
        self.killed += 1

    def restart_dead(self) -> None:
        """Whoever ended otherwise than in order is started again."""
        for worker, process in self.now().items():
            if process.popen.poll() not in (None, 0):
                self.start(worker)

    def wait(self, *, limit_seconds: float = PATIENCE_SECONDS, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Returns when every worker has ended in order."""
        until = time.monotonic() + limit_seconds
        while any(process.popen.poll() != 0 for process in self.now().values()):
            meanwhile()
            self.restart_dead()
            assert time.monotonic() < until, self.explain()
            time.sleep(POLL_SECONDS)

    def wait_until(self, what: Callable[[], bool], *, limit_seconds: float = PATIENCE_SECONDS) -> None:
        until = time.monotonic() + limit_seconds
        while not what():
            assert time.monotonic() < until, self.explain()
            time.sleep(POLL_SECONDS)

    def codes(self) -> dict[int, int | None]:
        return {worker: process.popen.poll() for worker, process in self.now().items()}

    def explain(self) -> str:
        lines = []
        for worker, process in self.now().items():
            lines.append(f"--- worker {worker}: exit code {process.popen.poll()}, {len(self.lives[worker])} lives")
            lines += process.log.splitlines()[-12:]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lives in self.lives.values():
            for process in lives:
                if process.popen.poll() is None:
                    process.popen.kill()
                process.popen.wait()


@dataclass
class Chaos:
    """Kills and freezes working processes at random moments."""

    fleet: Fleet
    kills: int
    freezes: int = 0
    frozen_seconds: float = 12.0
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311
    _due: dict[int, float] = field(default_factory=dict)
    _thaws: list[tuple[float, Process]] = field(default_factory=list)

    def turn(self) -> None:
        """To be called often."""
        now = time.monotonic()
        for at, process in list(self._thaws):
            if now >= at:
                process.signal(signal.SIGCONT)
                process.is_frozen = False
                self._thaws.remove((at, process))
        for process in self.fleet.working():
            if id(process) not in self._due:
                self._due[id(process)] = now + self.chance.uniform(0, 3)
            elif now >= self._due[id(process)]:
                self._strike(process, now)

    def _strike(self, process: Process, now: float) -> None:
        if self.freezes and self.chance.random() < 0.3:
            self.freezes -= 1
            process.signal(signal.SIGSTOP)
            process.is_frozen = True
            self._thaws.append((now + self.frozen_seconds, process))
            self._due[id(process)] = now + 2 * self.frozen_seconds
        elif self.kills:
            self.kills -= 1
            self.fleet.kill(process)
