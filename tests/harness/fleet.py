"""Independent workers as processes of this machine, started again when they die, as Kubernetes does it."""

import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.harness.processes import COMPILE_CACHE, PATIENCE_SECONDS, REPOSITORY, common_environment
from tools.localcluster.processes import Process, free_ports

POLL_SECONDS = 0.05


class Life(Process):
    """One life of a worker."""

    is_frozen = False

    @property
    def works(self) -> bool:
        """Whether it has begun with its units."""
        return not self.has_ended and "Units: " in self.log


@dataclass
class Fleet:
    """All workers of a job, and all their lives."""

    folder: Path
    directory: str
    config: Mapping[str, Any]
    environment_of: Callable[[int], Mapping[str, str]] = lambda worker: {}
    workers: int = 0
    lives: dict[int, list[Life]] = field(default_factory=dict)
    killed: int = 0

    def start(self, worker: int) -> Life:
        """One more life of a worker."""
        lives = self.lives.setdefault(worker, [])
        log_file = self.folder / f"{worker}.{len(lives)}.log"
        self.folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        environment = {
            **common_environment(self.folder, 1, self.config, self.directory),
            "JAX_COMPILATION_CACHE_DIR": str(COMPILE_CACHE),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "TPUJOB_NAME": "features",
            "TPUJOB_WORKER": str(worker),
            "TPUJOB_WORKERS": str(max(self.workers, worker + 1)),
            "TPUJOB_STARTUP_SECONDS": "300",
            "TPUJOB_GRACE_SECONDS": "20",
            "TPUJOB_REPORT_PORT": str(port),
            "TPUJOB_TERMINATION_LOG": str(log_file.with_suffix(".termination")),
            **self.environment_of(worker),
        }
        command = [sys.executable, "-m", "tpujob_trainer"]
        name = f"worker {worker}"
        lives.append(Life(name, command, log_file, environment=environment, working_directory=REPOSITORY))
        return lives[-1]

    def start_all(self, workers: int) -> None:
        self.workers = workers
        for worker in range(workers):
            self.start(worker)

    def now(self) -> dict[int, Life]:
        """The present life of each worker."""
        return {worker: lives[-1] for worker, lives in self.lives.items()}

    def working(self) -> list[Life]:
        return [process for process in self.now().values() if process.works and not process.is_frozen]

    def kill(self, process: Life) -> None:
        process.send(signal.SIGKILL)
        process.wait()
        self.killed += 1

    def restart_dead(self) -> None:
        """Whoever ended otherwise than in order is started again."""
        for worker, process in self.now().items():
            if process.exit_code not in (None, 0):
                self.start(worker)

    def wait(self, *, limit_seconds: float = PATIENCE_SECONDS, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Returns when every worker has ended in order."""
        until = time.monotonic() + limit_seconds
        while any(process.exit_code != 0 for process in self.now().values()):
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
        return {worker: process.exit_code for worker, process in self.now().items()}

    def explain(self) -> str:
        lines = []
        for worker, process in self.now().items():
            lines.append(f"--- worker {worker}: exit code {process.exit_code}, {len(self.lives[worker])} lives")
            lines += process.log.splitlines()[-12:]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lives in self.lives.values():
            for process in lives:
                process.send(signal.SIGKILL)
                process.stop()


@dataclass
class Chaos:
    """Kills and freezes working processes at random moments."""

    fleet: Fleet
    kills: int
    freezes: int = 0
    frozen_seconds: float = 12.0
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311
    _due: dict[int, float] = field(default_factory=dict)
    _thaws: list[tuple[float, Life]] = field(default_factory=list)

    def turn(self) -> None:
        """To be called often."""
        now = time.monotonic()
        for at, process in list(self._thaws):
            if now >= at:
                process.send(signal.SIGCONT)
                process.is_frozen = False
                self._thaws.remove((at, process))
        for process in self.fleet.working():
            if id(process) not in self._due:
                self._due[id(process)] = now + self.chance.uniform(0, 3)
            elif now >= self._due[id(process)]:
                self._strike(process, now)

    def _strike(self, process: Life, now: float) -> None:
        if self.freezes and self.chance.random() < 0.3:
            self.freezes -= 1
            process.send(signal.SIGSTOP)
            process.is_frozen = True
            self._thaws.append((now + self.frozen_seconds, process))
            self._due[id(process)] = now + 2 * self.frozen_seconds
        elif self.kills:
            self.kills -= 1
            self.fleet.kill(process)
