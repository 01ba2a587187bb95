"""Profiles of a live run: a trace of some steps for XProf, and a profile of the devices' memory after them.

The HTTP server's threads request them, the loop takes them between two steps, and a thread writes them. A failure never
ends the run.

A thread writes them: the loop never waits for storage, and a failure never ends the run.
"""

import contextlib
import copy
import logging
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from tpujob_contract.profiling import FOLDER, MOST_STEPS, RUN_PATTERN, Profile
from tpujob_trainer.storage import Bucket, open_bucket
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

CLOSING_SECONDS = 10.0
"""Time for a profile that is being written when the run ends."""


class BusyError(Exception):
    """Another profile is being taken."""


@dataclass(frozen=True)
class _Request:
    run: str
    steps: int


@dataclass(frozen=True)
class _Trace:
    run: str
    session: jax.profiler.ProfileSession
    end: int
    """Steps done at its end."""


class Profiler:
    """Takes one profile at a time."""

    def __init__(self, directory: str | None, *, process_id: int) -> None:
        """Nothing is traced before `request`.

        Args:
            directory: The checkpoint directory; None: files stay on this machine until the run ends.
            process_id: Names the files of this process.
        """
        self._directory = directory
        self._process_id = process_id
        self._lock = threading.Lock()
        self._profile = _idle()
        self._wanted: _Request | None = None
        self._trace: _Trace | None = None
        self._writing: threading.Thread | None = None
        self._local: Path | None = None

    def state(self) -> Profile:
        """The state of the last profile."""
        with self._lock:
            return copy.deepcopy(self._profile)

    def request(self, wanted: object) -> Profile:
        """Requests a trace of the next steps.

        Args:
            wanted: `steps` and the name of the `run`, as received over HTTP.

        Raises:
            ValueError: the request is invalid.
            BusyError: a profile is being taken.
        """
        request = _parse(wanted)
        with self._lock:
            if self._profile["state"] in ("waiting", "tracing", "writing"):
                raise BusyError(f"profile {self._profile['run']} is being taken; wait until it is done")
            self._profile = _idle() | {"state": "waiting", "run": request.run}
            self._wanted = request
            return copy.deepcopy(self._profile)

    @contextlib.contextmanager
    def step(self, done: int, state: Any) -> Iterator[None]:
        """A context manager for a step of the loop, which starts and stops traces.

        Args:
            done: Steps done before it.
            state: The result of the step before; waited for when a trace starts or stops.
        """
        if self._trace and done >= self._trace.end:
            self._stop(state)
        if self._wanted and not self._trace:
            self._start(self._wanted, done, state)
        if self._trace is None:
            yield
            return
        with jax.profiler.StepTraceAnnotation("train", step_num=done + 1):
            yield

    def close(self, state: Any = None) -> None:
        """Ends a current trace, with fewer steps than requested, and deletes the copies on this machine."""
        if self._trace:
            self._stop(state)
        if self._writing:
            self._writing.join(CLOSING_SECONDS)
        if self._local:
            shutil.rmtree(self._local, ignore_errors=True)
            self._local = None

    def _start(self, request: _Request, done: int, state: Any) -> None:
        self._wanted = None
        jax.block_until_ready(state)
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # Otherwise each Python call is traced, which slows down the steps.
        session = jax.profiler.ProfileSession(profiler_options=options)
        try:
            session.start()
        except RuntimeError as error:
            self._failed(f"the profiler did not start: {error}")
            return
        self._trace = _Trace(request.run, session, done + request.steps)
        self._update(state="tracing", steps=[done + 1, self._trace.end])
        logger.info("Profile %s: tracing steps %d to %d", request.run, done + 1, self._trace.end)

    def _stop(self, state: Any) -> None:
        assert self._trace is not None
        trace, self._trace = self._trace, None
        jax.block_until_ready(state)
        try:
            trace.session.stop()
            memory = jax.profiler.device_memory_profile()
        except RuntimeError as error:
            self._failed(f"the profiler did not stop: {error}")
            return
        self._update(state="writing")
        self._writing = threading.Thread(target=self._write, args=(trace, memory), name="profile", daemon=True)
        self._writing.start()

    def _write(self, trace: _Trace, memory: bytes) -> None:
        try:
            files = self._write_here(trace, memory)
            self._update(files={name: str(path) for name, path in files.items()})
            folder = self._save(files)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next profile must not wait for this one
            self._failed(f"not written: {errors.brief(error)}")
            return
        self._update(state="done", folder=folder)
        logger.info("Profile %s: saved in %s", trace.run, folder or self._local)

    def _write_here(self, trace: _Trace, memory: bytes) -> dict[str, Path]:
        """The files of a profile, by their names in the folder of profiles; deletes those of the previous one."""
        if self._local:
            shutil.rmtree(self._local, ignore_errors=True)
        self._local = Path(tempfile.mkdtemp(prefix="tpujob-profile-"))
        jax.profiler.export_profile_data(trace.session, self._local, session_id=trace.run)
        # Named for the process: the processes of a rehearsal share one host name.
        name = f"process-{self._process_id}"
        [traced] = self._local.rglob("*.xplane.pb")
        used = self._local / "memory.pb.gz"
        used.write_bytes(memory)
        return {f"plugins/profile/{trace.run}/{name}.xplane.pb": traced, f"memory/{trace.run}/{name}.pb.gz": used}

    def _save(self, files: Mapping[str, Path]) -> str | None:
        if self._directory is None:
            return None
        bucket = open_bucket(self._directory)
        for name, path in files.items():
            bucket.write(f"{FOLDER}/{name}", path.read_bytes())
        return f"{bucket.url}/{FOLDER}"

    def _failed(self, message: str) -> None:
        logger.warning("Profile %s: %s", self._profile["run"], message)
        self._update(state="failed", message=message)

    def _update(self, **facts: Any) -> None:
        with self._lock:
            self._profile = {**self._profile, **facts}  # type: ignore[typeddict-item]


def _idle() -> Profile:
    return {"state": "idle", "run": None, "steps": None, "folder": None, "files": {}, "message": None}


def _parse(wanted: object) -> _Request:
    found = wanted if isinstance(wanted, dict) else {}
    steps, run = found.get("steps"), found.get("run")
    if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps: {steps!r} is not a whole number from 1 to {MOST_STEPS}")
    if not isinstance(run, str) or not re.fullmatch(RUN_PATTERN, run):
        raise ValueError(f"run: {run!r} is no name; use at most 63 letters, digits, dots, - and _")
    return _Request(run, steps)


MEMORY_FOLDER = f"{FOLDER}/memory-by-step"


class MemoryProfiles:
    """Writes profiles for pprof; a hook of the loop."""

    def __init__(self, directory: str, *, process_id: int, every_steps: int, keep: int) -> None:
        """Nothing is written yet.

        Args:
            directory: The checkpoint directory, with a folder for each process.
            process_id: Names the folder of this process.
            every_steps: Steps between two profiles; there is also one after the last step.
            keep: Number of newest profiles that are kept.
        """
        self.every_steps: int | None = every_steps
        self._directory = directory
        self._folder = f"{MEMORY_FOLDER}/process-{process_id}"
        self._keep = keep
        self._bucket: Bucket | None = None
        self._writing: threading.Thread | None = None

    def run(self, step: int, state: Any, get_flags: Callable[[], Any]) -> None:
        """Takes a profile after `step` steps; skipped while the previous one is being written."""
        if self._writing and self._writing.is_alive():
            logger.warning("Memory profile after step %d: left out, the one before is still being written", step)
            return
        try:
            profile = jax.profiler.device_memory_profile()
        except RuntimeError as error:
            logger.warning("Memory profile after step %d: not taken: %s", step, error)
            return
        self._writing = threading.Thread(target=self._write, args=(step, profile), name="memory-profile", daemon=True)
        self._writing.start()

    def close(self) -> None:
        """Waits for a profile that is being written, for `CLOSING_SECONDS` at most."""
        if self._writing:
            self._writing.join(CLOSING_SECONDS)

    def _write(self, step: int, profile: bytes) -> None:
        try:
            self._bucket = self._bucket or open_bucket(self._directory)
            # Enough digits that names sort as steps do.
            self._bucket.write(f"{self._folder}/{step:012}.pb.gz", profile)
            for name in self._bucket.names(f"{self._folder}/")[: -self._keep]:
                self._bucket.delete(name)
        except Exception as error:  # noqa: BLE001 - libraries of storage have errors of their own; training goes on
            logger.warning("Memory profile after step %d: not written: %s", step, errors.brief(error))
