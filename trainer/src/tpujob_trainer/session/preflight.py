"""Checks the hosts before the first step: the result of an all-reduce over all devices, and scarce resources.

Without it, a host with broken links or wrong results is noticed only when the loss diverges after hours. A wrong result
ends the run; a slow or unusual host causes a warning. One small program is compiled, so it takes about a second.
"""

import dataclasses
import logging
import os
import shutil
import tempfile
import time
from dataclasses import dataclass

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.config.schema import PreflightConfig
from tpujob_trainer.distributed.host_check import HostFacts, warnings, wrong_hosts
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.model.chips import BY_KIND
from tpujob_trainer.values.errors import TrainerError

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 120.0
"""Limit for all hosts to be ready, and again for them to have the result."""
BANDWIDTH_BYTES = 64 << 20
"""Bytes that each device reduces for `preflight.bandwidth`."""


@dataclass(frozen=True)
class Preflight:
    """The result of the checks."""

    seconds: float
    warnings: tuple[str, ...]


def check_hosts(runtime: Runtime, config: PreflightConfig) -> Preflight:
    """Checks the hosts of a run; all processes must call it.

    Raises:
        TrainerError: an exchange has a wrong result; names the host, the same on all processes.
        CoordinationError: a host was not ready within two minutes; names it.
    """
    began = time.monotonic()
    talk = runtime.coordination
    talk.barrier("preflight/start", limit_seconds=LIMIT_SECONDS)
    released, clock = time.monotonic(), time.time()
    devices = sorted(jax.devices(), key=lambda device: device.id)
    mesh = Mesh(np.array(devices), ("all",))
    numbers = _place(mesh, contribution(devices))
    facts = HostFacts(
        ready_seconds=time.monotonic() - released,
        clock=clock,
        memory_bytes=free_memory_bytes(),
        disk_bytes=shutil.disk_usage(tempfile.gettempdir()).free,
    )
    found: list[str] = talk.lead_decides_on(
        "preflight/ready",
        dataclasses.asdict(facts),
        lambda said: warnings([said[i] for i in range(runtime.num_processes)], talk.name),
        limit_seconds=LIMIT_SECONDS,
    )
    _require_right_sum(runtime, mesh, numbers)
    if config.bandwidth:
        _measure_bandwidth(mesh, is_lead=runtime.is_lead)
    seconds = time.monotonic() - began
    if runtime.is_lead:
        logger.info("Pre-flight: %d devices exchanged right numbers, %.2f s", len(devices), seconds)
        for line in found:
            logger.warning("Pre-flight: %s", line)
    return Preflight(seconds, tuple(found))


def contribution(devices: list[jax.Device]) -> dict[int, np.ndarray]:
    """The summand of each device of this process, float32 [devices]: its index plus one at its index, else 0."""
    mine = {}
    for place, device in enumerate(devices):
        if device.process_index == jax.process_index():
            mine[place] = np.zeros(len(devices), np.float32)
            mine[place][place] = place + 1
    return mine


def free_memory_bytes() -> int:
    """Free memory of this host."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _place(mesh: Mesh, mine: dict[int, np.ndarray]) -> jax.Array:
    """An array, float32 [devices, devices], with a row on each device; returns when they are there."""
    rows = NamedSharding(mesh, PartitionSpec("all"))

    def row(index: tuple[slice, ...]) -> np.ndarray:
        return mine[index[0].start or 0][None]

    placed = jax.make_array_from_callback((mesh.size, mesh.size), rows, row)
    return jax.block_until_ready(placed)


def _require_right_sum(runtime: Runtime, mesh: Mesh, numbers: jax.Array) -> None:
    """Raises a TrainerError that names hosts that contributed or received a wrong value."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    total = jax.jit(lambda rows: rows.sum(axis=0), out_shardings=everywhere)(numbers)
    expected = np.arange(1, mesh.size + 1, dtype=np.float32)
    wrong: set[int] = set()
    for shard in total.addressable_shards:
        wrong.update(np.flatnonzero(np.asarray(shard.data) != expected).tolist())
    talk = runtime.coordination
    owners = [device.process_index for device in mesh.devices.flat]
    words = talk.lead_decides_on(
        "preflight/result",
        sorted(wrong) or None,
        lambda said: wrong_hosts([said.get(i, []) for i in range(runtime.num_processes)], owners, talk.name),
        limit_seconds=LIMIT_SECONDS,
    )
    if words is not None:
        error = TrainerError(
            f"pre-flight: an all-reduce over {mesh.size} devices has a wrong result: {words}; have the host's node "
            "drained and looked at"
        )
        error.is_shared = True
        raise error


def _measure_bandwidth(mesh: Mesh, *, is_lead: bool) -> None:
    """Logs how fast all devices reduce 64 MiB each, compared with the links of the chip."""
    rows = NamedSharding(mesh, PartitionSpec("all"))
    columns = BANDWIDTH_BYTES // 4
    make = jax.jit(lambda: jax.numpy.ones((mesh.size, columns), np.float32), out_shardings=rows)
    reduce = jax.jit(lambda x: x.sum(axis=0), out_shardings=NamedSharding(mesh, PartitionSpec()))
    numbers = jax.block_until_ready(make())
    jax.block_until_ready(reduce(numbers))
    began = time.monotonic()
    jax.block_until_ready(reduce(numbers))
    # A ring moves 2 (n - 1) / n of the bytes through each device.
    rate = 2 * (mesh.size - 1) / mesh.size * BANDWIDTH_BYTES / (time.monotonic() - began)
    chip = BY_KIND.get(mesh.devices.flat[0].device_kind)
    beside = f", {rate / chip.link_bytes_per_second:.0%} of the chip's links" if chip is not None else ""
    if is_lead:
        logger.info("Pre-flight: an all-reduce moves %.2f GB/s through each device%s", rate / 1e9, beside)
