"""Random faults at random moments, in jobs in pods of the one-machine cluster: what must hold after each.

    python -m benchmarks.random_pod_faults --minutes 60 [--seed 1] [--at-once 2] [--write]      after `make cluster`

A round is one job: a kind of program, two to four pods, restarts in place or not. It counts its steps and saves; faults
come from outside, one after another. After each fault:

- the job goes on after the newest checkpoint, which is none that is older than at the fault;
- the program of process 0 starts once, and each container has one program; with new pods it may start twice, where the
  operator puts off a restart that JobSet has made.

In the end the job is suspended, so that all launchers have told what they know, and is deleted:

- its status counts each fault once, and has the disruptions that were some;
- no process of its pods is left on the node.
"""

import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import random_rounds
from benchmarks.random_rounds import MOST_RESTARTS, Broken, Struck
from benchmarks.recovery import faults, pods, programs
from benchmarks.recovery.pods import JOB
from tests.e2e import host_processes
from tests.e2e.host_folders import claimed, writable
from tests.e2e.jobs import Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.test_training import delete, evict
from tools.localcluster.api import Object
from tools.localcluster.control_plane import CommandError
from tools.localcluster.waiting import wait_for
from tpujob_trainer.checkpoint.layout import COMMITTED

OF_LAUNCHER, DELETION, EVICTION = "kill -9 of a launcher", "deleted pod", "eviction"
DISRUPTIONS = (DELETION, EVICTION)
TAKES_WITNESSES = ("freeze", "OOM kill", OF_LAUNCHER)
"""After these, JobSet may delete the pod before its end is stored: such a restart may have no known cause."""
AFTER_A_STEP = ("exception", "OOM kill")
"""A program has signal handlers for these once Python runs, but calls them only after its first compilation."""
COUNTS = {"trainer": (2, 4), "plain JAX": (2, 3, 4), "MaxText": (2,)}
"""Numbers of pods; the trainer's batch has 16 rows."""
GONE_SECONDS = 60.0
MARKS = "<!-- table: random pod faults -->", "<!-- end of random pod faults -->"

BEGINS = "the program of process 0 begins"
SITECUSTOMIZE = f"""
{faults.SITECUSTOMIZE}
import os
if os.getppid() == 1 and os.environ.get("TPUJOB_HOST") == "0":
    print({BEGINS!r}, flush=True)
"""


class Round(random_rounds.Round):
    """One job in pods, from its start until it is deleted."""

    faults = (*faults.SIGNALS, OF_LAUNCHER, DELETION, EVICTION)
    most_faults = 5
    moment_seconds = 10.0
    jobs: Jobs

    def end(self) -> None:
        """Compares the accounts, deletes the job, and looks for processes that are left."""
        self._check_accounts()
        self.jobs.delete(JOB)
        self.wait("its pods to go", lambda: not self.jobs.pods(JOB))
        self._check_nothing_left()

    def explain(self) -> str:
        """The status of the job, and the end of process 0's output."""
        printed = [f"{at:.1f} {line}" for at, line in self._read()[-60:]]
        return "\n".join([json.dumps(self.jobs.status(JOB), indent=1), *printed])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Applies the job in a namespace of its own, for a block."""
        surroundings = Surroundings.handed_over()
        if surroundings is None:
            raise SystemExit("no cluster is up: run `make cluster` first")
        self._step = programs.STEP_LINES[self.program]
        self._lines: dict[tuple[float, str], None] = {}
        """The log of process 0, including pods whose logs are gone."""
        self._uids: set[str] = set()
        """Of all pods so far."""
        self._seen: set[int] = set()
        """All checkpoints so far: programs delete old ones."""
        text = pods.write_text(surroundings, f"random/{secrets.token_hex(4)}")
        saved = writable(self.folder / "saved")
        with jobs_in_namespace(surroundings, text, "random", {}) as self.jobs:
            folders = {"saved": saved} | ({"maxtext": pods.MAXTEXT} if self.program == "MaxText" else {})
            with claimed(self.jobs, folders):
                pods.apply(
                    self.jobs,
                    self.program,
                    self.count,
                    in_place_restarts=MOST_RESTARTS if self.in_place else 0,
                    sitecustomize=SITECUSTOMIZE,
                    restarts={"crashes": MOST_RESTARTS},
                )
                try:
                    yield
                finally:
                    self.jobs.delete(JOB)

    def strike(self, fault: str) -> Struck:
        """Injects a fault, and checks that the job continues as expected."""
        victim = self.chance.randrange(self.count)
        moment = self.chance.uniform(0, self.moment_seconds)
        last_fault = self._lines_until_now()
        self.wait("all pods to run", self._running)
        threading.Event().wait(moment)
        if fault in AFTER_A_STEP or not self.struck:
            self.wait("a step", lambda: self._steps_after(last_fault))
        before = self.wait("all pods to run", self._running)
        saved = self._committed()
        at = self._hit(fault, before[victim])

        def next_step() -> tuple[int, float] | None:
            self._saved_since()  # the checkpoint from which it resumes may be deleted soon
            return self._first_step_of_next(at)

        self.wait("the next step", next_step)
        again = self._pods()
        first, seconds = self._first_step_of_next(at) or (0, 0.0)
        # A deleted pod may continue during its grace period, and so may the others.
        last = max((number for when, number in self._steps() if when < at + seconds), default=0)
        self._check(fault, first, saved, at)
        kept = {uid(pod) for pod in again} & {uid(pod) for pod in before} - {uid(before[victim])}
        return Struck(fault, len(kept) == self.count - 1, seconds, max(0, last - first + 1))

    def _hit(self, fault: str, pod: Object) -> float:
        """Injects a fault in a pod; returns its time, in Unix seconds."""
        name = pod["metadata"]["name"]
        if fault in faults.SIGNALS:
            found: list[float] = []

            def is_hit() -> bool:
                try:
                    found.append(pods.signalled(self.jobs, name, faults.SIGNALS[fault]))
                except CommandError:
                    return False  # its program has not started, or that of the previous attempt has not ended
                return True

            self.wait(f"one program in {name}", is_hit)
            return found[0]
        launcher = self.wait(f"the launcher of {name}", lambda: self._launcher(pod)) if fault == OF_LAUNCHER else 0
        at = time.time()
        if launcher:
            os.kill(launcher, signal.SIGKILL)
        else:
            {DELETION: delete, EVICTION: evict}[fault](self.jobs, name)
        return at

    def _launcher(self, pod: Object) -> int | None:
        """The pid of a pod's launcher on this machine; None: it does not run yet."""
        found = (each for each in host_processes.processes("") if is_of({uid(pod)}, each))
        return next((each for each in found if host_processes.is_first(each)), None)

    def _check(self, fault: str, first: int, saved: int, at: float) -> None:
        begun = [when for when, line in self._read() if when > at and BEGINS in line]
        # With new pods, JobSet restarts at once; after quick restarts, the operator then postpones that restart.
        if not 1 <= len(begun) <= (1 if self.in_place else 2):
            raise Broken(f"{fault}: the program of process 0 began {len(begun)} times after it")
        self.check_resumed(fault, first, saved, self._saved_since())

    def _check_accounts(self) -> None:
        """Suspends the job, and compares the counts in its status with the injected faults."""
        self.jobs.patch(JOB, suspend=True)
        self.wait("it to be suspended", lambda: self.jobs.status(JOB).get("phase") == "Suspended")
        disruptions = sum(each.fault in DISRUPTIONS for each in self.struck)
        unseen = sum(each.fault in TAKES_WITNESSES for each in self.struck)
        expected = {"restarts.total": len(self.struck), "restarts.disruptions": disruptions}
        found: dict[str, int] = {}

        def are_right() -> bool:
            status = self.jobs.status(JOB)
            found.update({name: status.get(name) or 0 for name in (*expected, "restarts.unexplained")})
            return expected.items() <= found.items() and found["restarts.unexplained"] <= unseen

        try:
            wait_for("the accounts", are_right, timeout_seconds=GONE_SECONDS)
        except TimeoutError:
            done = ", ".join(each.fault for each in self.struck)
            words = f"{done}: status has {found}, and not {expected} and at most {unseen} without a cause"
            raise Broken(words) from None

    def _check_nothing_left(self) -> None:
        left = [
            f"{each} {host_processes.command(each)}" for each in host_processes.processes("") if is_of(self._uids, each)
        ]
        if left:
            raise Broken(f"processes are left: {left}")

    def _pods(self) -> list[Object]:
        """The pods that have not ended and are not being deleted, ordered by process."""
        there = self.jobs.pods(JOB)
        found = [pod for pod in there if "deletionTimestamp" not in pod["metadata"] and not has_ended(pod)]
        self._uids.update(map(uid, there))
        self._read()
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"][pods.INDEX]))

    def _running(self) -> list[Object] | None:
        """All pods; None: not all of them run, or the job is not Running."""
        found = self._pods()
        do_run = len(found) == self.count and all(pod["status"]["phase"] == "Running" for pod in found)
        return found if do_run and self.jobs.status(JOB).get("phase") == "Running" else None

    def _read(self) -> list[tuple[float, str]]:
        self._lines.update(dict.fromkeys(pods.lines_of(self.jobs)))
        return sorted(self._lines)

    def _lines_until_now(self) -> float:
        return max((at for at, _ in self._read()), default=0.0)

    def _steps(self) -> Iterator[tuple[float, int]]:
        for at, line in self._read():
            if found := self._step.search(line):
                yield at, int(found[1])

    def _steps_after(self, moment: float) -> bool:
        return any(at > moment for at, _ in self._steps())

    def _first_step_of_next(self, fault: float) -> tuple[int, float] | None:
        """The first step of the attempt after a fault, and the seconds from the fault; None: there is none yet."""
        begun = next((at for at, line in self._read() if at > fault and BEGINS in line), None)
        if begun is None:
            return None
        return next(((number, at - fault) for at, number in self._steps() if at > begun), None)

    def _saved_since(self) -> set[int]:
        """The steps that are, or have been, checkpoints."""
        if self.program == "plain JAX":  # it overwrites its only checkpoint in each step
            return set(range(self._committed() + 1))
        self._seen |= self._commits()
        return self._seen

    def _committed(self) -> int:
        """The last step in the newest checkpoint; 0 (plain JAX) or -1: there is none."""
        if self.program == "plain JAX":
            file = self.folder / "saved" / "step"
            return int(file.read_text()) if file.exists() else 0
        return max(self._commits(), default=-1)

    def _commits(self) -> set[int]:
        if self.program == "MaxText":
            folders = (self.folder / "saved").glob("job/**/checkpoints/*")
            return {int(each.name) for each in folders if each.name.isdecimal()}
        names = (Path(name) for name in self.jobs.objects(JOB, "steps/"))
        return {int(name.parts[1]) for name in names if name.name == COMMITTED and name.parts[1].isdecimal()}


def has_ended(pod: Object) -> bool:
    """Whether a pod has ended: its phase is Failed or Succeeded."""
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def uid(pod: Object) -> str:
    """The uid of a pod."""
    return str(pod["metadata"]["uid"])


def is_of(uids: set[str], process: int) -> bool:
    """Whether a process on this machine belongs to one of these pods."""
    groups = host_processes.cgroup(process).replace("_", "-")
    return any(each in groups for each in uids)


if __name__ == "__main__":
    sys.exit(random_rounds.main(__doc__, Round, COUNTS, MARKS, jobs=2))
