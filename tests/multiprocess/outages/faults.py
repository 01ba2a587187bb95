"""What the world does to a run: storage, disk, names, memory, clock and signals."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tests.multiprocess.outages.scene import MEMORY_GROUPS, NAME, Scene
from tests.multiprocess.storage_proxy import CUT, SLOW, STALL, Request

OUTAGE_SECONDS = 12.0
"""Of a fault that passes."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One row of the table."""

    name: str
    target: Literal["bucket", "disk", "process"]
    begin: Callable[[Scene], object] | None = None
    """None: the victim does it to itself."""
    end: Callable[[Scene], object] | None = None
    """None: it does not end."""
    act: str = "wait"
    """Of `faulty_trainer`."""
    is_refusal: bool = False
    """Whether another attempt would end the same way."""
    is_silent: bool = False
    """Whether it does not answer at all."""
    needs: Path | None = None
    """Without which this machine cannot play it."""

    @property
    def passes(self) -> bool:
        """Whether the run is to end as if nothing had been."""
        return self.end is not None or self.act == "clock"


def _any(request: Request) -> bool:
    return True


def _answers(name: str, status: int, *, passes: bool) -> Fault:
    def begin(scene: Scene) -> None:
        assert scene.proxy is not None
        scene.proxy.fail(status, _any)

    return Fault(
        name, "bucket", begin, _heal if passes else None, is_refusal=status in (403, 404), is_silent=status == STALL
    )


def _heal(scene: Scene) -> None:
    assert scene.proxy is not None
    scene.proxy.heal()


def _cut_network(scene: Scene) -> None:
    assert scene.proxy is not None
    scene.proxy.shut()


def _mend_network(scene: Scene) -> None:
    assert scene.proxy is not None
    scene.proxy.open()


def _forget_names(scene: Scene) -> None:
    """Open connections end as well: as long as they last nobody asks for a name."""
    scene.know_names()
    _cut_network(scene)


def _know_names(scene: Scene) -> None:
    scene.know_names(NAME)
    _mend_network(scene)


DNS = "DNS gone, for a while"
FAULTS = (
    _answers("403", 403, passes=False),
    _answers("404", 404, passes=False),
    _answers("429, for a while", 429, passes=True),
    _answers("500, for a while", 500, passes=True),
    _answers("503, for a while", 503, passes=True),
    _answers("503", 503, passes=False),
    _answers("no answer, for a while", STALL, passes=True),
    _answers("no answer", STALL, passes=False),
    _answers("slow, for a while", SLOW, passes=True),
    _answers("cut answers, for a while", CUT, passes=True),
    Fault(DNS, "bucket", _forget_names, _know_names, needs=Path("/etc/hosts")),
    Fault("network cut, for a while", "bucket", _cut_network, _mend_network),
    Fault("network cut", "bucket", _cut_network),
    Fault("full disk, for a while", "disk", Scene.fill_disk, Scene.empty_disk),
    Fault("full disk", "disk", Scene.fill_disk),
    Fault("read-only disk", "disk", Scene.protect_disk, is_refusal=True),
    Fault("clock a day ahead", "process", act="clock"),
    Fault("OOM kill", "process", Scene.take_memory, needs=MEMORY_GROUPS / "cgroup.procs"),
    Fault("kill -9", "process", act="kill -9"),
    Fault("freeze", "process", act="SIGSTOP"),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
