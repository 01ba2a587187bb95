"""Plays one cell: starts the run, makes the fault when process 0 has come to the stage, and looks at what is left."""

import dataclasses
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness import processes
from tests.multiprocess import faults
from tests.multiprocess.bucket import Bucket
from tests.multiprocess.outages.cells import (
    EVERY,
    FAIL_AFTER_SECONDS,
    GRACE_SECONDS,
    LIMIT_SECONDS,
    OUTAGE_LIMIT_SECONDS,
    PROCESSES,
    RETRY_SECONDS,
    UNIT_ROWS,
    VICTIM,
    Cell,
    Outcome,
    patience,
)  # fmt: skip
from tests.multiprocess.outages.faults import BY_NAME, DNS, OUTAGE_SECONDS, Fault
from tests.multiprocess.outages.scene import Scene
from tests.multiprocess.storage_proxy import StorageProxy
from tools.localcluster.processes import free_ports
from tools.localcluster.waiting import POLL_SECONDS, wait_for

SECOND_TIME = ("save", "stop", "extract")
"""Stages that are struck at their second time: there is something to lose then."""
WITHOUT_STORAGE_BEFORE = ("start", "data", "restore", "extract")
"""Stages at which nothing of this attempt has been committed."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A run to which nothing happened."""

    bucket: Bucket
    directory: str
    """Of its checkpoints, a name in the bucket."""
    losses: Mapping[int, float]
    corpus: str


def play_cell(cell: Cell, folder: Path, config: Mapping[str, Any], reference: Reference) -> Outcome:
    """Plays a cell to its end.

    Args:
        cell: What happens, and when.
        folder: For logs, marks and the small disk; new.
        config: The `trainer` block of a training run of `STEPS` steps.
        reference: The same run, undisturbed, and its data.
    """
    folder.mkdir(parents=True)
    fault = BY_NAME[cell.fault]
    scene = Scene(folder, victim=VICTIM)
    try:
        directory = _prepare(scene, cell, reference)
        return _play(cell, fault, scene, directory, _config_of(cell, config, reference), reference)
    finally:
        scene.close()


def _prepare(scene: Scene, cell: Cell, reference: Reference) -> str:
    """The checkpoint directory: empty, or for `restore` with the first commit of the undisturbed run."""
    if BY_NAME[cell.fault].target == "disk":
        directory = str(scene.make_disk() / "checkpoints")
    else:
        directory = f"gs://{reference.bucket.name}/{cell.key}"
    if cell.fault == DNS:
        scene.make_hosts()
    scene.proxy = StorageProxy(reference.bucket, PROCESSES)
    if cell.stage == "restore":
        for name in reference.bucket.objects(f"{reference.directory}/"):
            inner = name.removeprefix(f"{reference.directory}/")
            step = re.match(r"(?:steps|metrics)/(\d+)", inner)
            if inner.startswith("export/") or (step and int(step[1]) > EVERY):
                continue
            content = reference.bucket.read(name)
            if directory.startswith("gs://"):
                reference.bucket.write(f"{cell.key}/{inner}", content)
            else:
                file = Path(directory, inner)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
    return directory


def _config_of(cell: Cell, config: Mapping[str, Any], reference: Reference) -> dict[str, Any]:
    data = {"path": reference.corpus, "retrySeconds": RETRY_SECONDS}
    if cell.stage == "extract":
        return {
            "task": "extract",
            "model": config["model"],
            "data": data,
            "sequenceLength": config["sequenceLength"],
            "batchSize": 4,
            "extract": {"layers": [0], "unitRows": UNIT_ROWS, "leaseSeconds": 6},
        }
    # How old the last commit is when the fault begins depends on the machine.
    limit = OUTAGE_LIMIT_SECONDS if BY_NAME[cell.fault].passes else FAIL_AFTER_SECONDS
    return {**config, "data": data, "checkpoint": {**config["checkpoint"], "failAfterSeconds": limit}}


def _play(
    cell: Cell, fault: Fault, scene: Scene, directory: str, config: Mapping[str, Any], reference: Reference
) -> Outcome:
    mark = scene.folder / "mark"
    scene.run = _start(cell, fault, scene, directory, config, mark)
    with scene.run as attempt:
        faults.wait_for_strike(attempt, mark)
        scene.pid = int(mark.read_text())
        if cell.stage not in WITHOUT_STORAGE_BEFORE and fault.begin is not None and cell.stage != "compile":
            wait_for(
                "the first commit",
                lambda: _kept(cell, directory, reference) >= EVERY,
                timeout_seconds=processes.PATIENCE_SECONDS,
                explain=attempt.explain,
            )
        began = time.monotonic()
        if fault.begin is not None:
            fault.begin(scene)
        Path(f"{mark}.go").touch()
        awaited = [index for index in range(PROCESSES) if not (fault.act == "SIGSTOP" and index == VICTIM)]
        ended = False
        until = began + LIMIT_SECONDS + patience(cell)
        while time.monotonic() < until and None in [attempt[index].poll() for index in awaited]:
            if fault.end is not None and not ended and time.monotonic() > began + OUTAGE_SECONDS:
                fault.end(scene)
                ended = True
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - began
        if not ended and fault.end is None and fault.target == "bucket" and scene.proxy is not None:
            scene.proxy.heal()  # for whoever still waits for an answer
        if None in [attempt[index].poll() for index in awaited]:
            explanation = attempt.explain_lateness()
        else:
            explanation = attempt.explain()
        losses = {step: loss for member in attempt.members for step, loss in member.losses.items()}
        return Outcome(
            cell,
            tuple(member.poll() for member in attempt.members),
            tuple(member.termination_message for member in attempt.members),
            seconds,
            _promised(cell, attempt),
            _kept(cell, directory, reference),
            tuple(step for step, loss in losses.items() if loss != reference.losses.get(step)),
            directory if cell.stage == "extract" or fault.target == "disk" else f"gs://{reference.bucket.name}/",
            explanation,
        )


def _start(
    cell: Cell, fault: Fault, scene: Scene, directory: str, config: Mapping[str, Any], mark: Path
) -> processes.Run:
    program: Sequence[str] = faults.LAUNCHED
    if scene.hosts is not None:
        program = ("-m", "tests.multiprocess.outages.own_hosts", str(scene.hosts), sys.executable, *faults.LAUNCHED)
    environment = faults.environment(faults.Cell(fault.act, VICTIM, cell.stage), mark)
    environment["FAULT_CALL"] = "2" if cell.stage in SECOND_TIME else "1"
    if cell.stage == "extract":
        return _start_workers(scene, directory, config, program, environment)
    return processes.start(
        scene.folder / "logs",
        processes=PROCESSES,
        devices=1,
        config=config,
        checkpoint_dir=directory,
        attempt=1 if cell.stage == "restore" else 0,
        grace_seconds=GRACE_SECONDS,
        program=program,
        extra=environment,
        extra_of=scene.environment,
    )


def _start_workers(
    scene: Scene, directory: str, config: Mapping[str, Any], program: Sequence[str], environment: Mapping[str, str]
) -> processes.Run:
    """Independent workers, as members of a run."""
    logs = scene.folder / "logs"
    logs.mkdir()
    members = []
    for index, port in enumerate(free_ports(PROCESSES)):
        own = {
            **processes.common_environment(logs, 1, config, directory),
            "TPUJOB_NAME": "features",
            "TPUJOB_WORKER": str(index),
            "TPUJOB_WORKERS": str(PROCESSES),
            "TPUJOB_HOST": str(index),  # for the program that has the fault
            "TPUJOB_STARTUP_SECONDS": "300",
            "TPUJOB_GRACE_SECONDS": "20",
            **environment,
            **scene.environment(index),
        }
        members.append(processes.Member(index, program, logs, port, own))
    return processes.Run(members)


def _promised(cell: Cell, attempt: processes.Run) -> int:
    """What the processes said is kept."""
    logs = "\n".join(member.log for member in attempt.members)
    if cell.stage == "extract":
        return max([int(done) for done in re.findall(r"Units: done=(\d+) of", logs)], default=0)
    return max([int(step) for step in re.findall(r"Committed the checkpoint of step (\d+)", logs)], default=0)


def _kept(cell: Cell, directory: str, reference: Reference) -> int:
    """The newest step that is committed, or the number of units that are done."""
    if directory.startswith("gs://"):
        prefix = directory.removeprefix(f"gs://{reference.bucket.name}/") + "/"
        names = [name.removeprefix(prefix) for name in reference.bucket.objects(prefix)]
    else:
        names = [str(file.relative_to(directory)) for file in Path(directory).rglob("*")]
    if cell.stage == "extract":
        return sum(name.startswith("done/") for name in names)
    steps = [re.fullmatch(r"steps/(\d+)/commit_success\.txt", name) for name in names]
    return max([int(step[1]) for step in steps if step], default=0)
