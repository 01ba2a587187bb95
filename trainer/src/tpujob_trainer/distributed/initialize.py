"""Process initialisation: own number, number of processes and coordinator, passed to JAX explicitly."""

import dataclasses
import logging
import os
import secrets
import socket
from collections.abc import Callable

import jax

from tpujob_contract import DistributedProcess, LocalProcess, Process, environment, ports
from tpujob_contract.connections import open_files
from tpujob_trainer.distributed import host_check, kv_store, peers
from tpujob_trainer.distributed.peers import Membership, Peers
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

JAX_HEARTBEATS = 3
"""Our heartbeat limits after which JAX's ends a process: it aborts without naming a process, so it comes last."""
JAX_LEAST_HEARTBEAT_SECONDS = 100
"""JAX's default."""
INITIALIZATION_SECONDS = 120
"""Limit of JAX's own start, once all processes are there."""
SHUTDOWN_SECONDS = 20
"""How long an ending process waits for the others to end as well."""


@dataclasses.dataclass(frozen=True)
class Runtime:
    """This process and its connection to the others of its run."""

    process_id: int
    num_processes: int
    attempt_id: str
    """As in `Report.attempt`: the same in all processes, and never used before."""
    host: str
    coordination: kv_store.Coordination

    @property
    def is_lead(self) -> bool:
        """Whether this is process 0, which writes the small files and speaks for the run."""
        return self.process_id == 0

    def close(self) -> None:
        """Shuts JAX down together with the others, in a run that ends in order. Waits for them up to 20 s."""
        if jax.distributed.is_initialized():
            jax.distributed.shutdown()


def start(
    process: Process,
    *,
    heartbeat_seconds: int,
    configuration_hash: str,
    on_met: Callable[[Peers], None] = lambda peers: None,
) -> Runtime:
    """Starts JAX in this process; returns its runtime.

    Args:
        process: From `tpujob_contract.read_environment`.
        heartbeat_seconds: Silence after which a process counts as dead and the others end.
        configuration_hash: Compared between the processes.
        on_met: Called before JAX starts, with the connection to the other processes.

    Raises:
        PeersMissingError: not all arrived within the contract's `startup_seconds`; twenty missing ones are named.
        ConfigurationError: the processes do not run the same program.
    """
    host = socket.gethostname()
    if isinstance(process, DistributedProcess) and process.num_processes > 1:
        membership = _met(process, host, heartbeat_seconds, configuration_hash, on_met)
        _start_jax(process, heartbeat_seconds)
        talk = kv_store.of_jax(process.process_id, membership.hosts)
        # Without a launcher that has one, process 0 generates it.
        nonce = membership.nonce or talk.lead_decides(
            "nonce", lambda: secrets.token_hex(4), limit_seconds=INITIALIZATION_SECONDS
        )
        attempt_id = _attempt_id(process, nonce)
        runtime = Runtime(process.process_id, process.num_processes, attempt_id, host, talk)
    else:
        if isinstance(process, LocalProcess):
            logger.info("No TPUJOB_ variables in the environment: one process on its own")
        attempt_id = _attempt_id(process, secrets.token_hex(4))
        runtime = Runtime(0, 1, attempt_id, host, kv_store.alone())
    if jax.process_count() != runtime.num_processes:
        raise errors.TrainerError(
            f"JAX sees {jax.process_count()} processes where the job has {runtime.num_processes}; "
            "the accelerator's own variables (TPU_*, MEGASCALE_*) disagree with TPUJOB_*"
        )
    logger.info(
        "Process %d of %d on host %s: attempt %s, %d local and %d global %s devices",
        runtime.process_id,
        runtime.num_processes,
        host,
        attempt_id,
        jax.local_device_count(),
        jax.device_count(),
        jax.default_backend(),
    )
    return runtime


def _met(
    process: DistributedProcess,
    host: str,
    heartbeat_seconds: int,
    configuration_hash: str,
    on_met: Callable[[Peers], None],
) -> Membership:
    """The membership, once the launchers have met and all processes are there."""
    if process.process_id == 0:
        try:
            open_files.allow(process.num_processes, each=1)
        except open_files.TooFewFiles as error:
            raise errors.ConfigurationError(str(error)) from error
    address = os.environ.get(environment.PEERS_SOCKET)
    if not address:
        logger.warning(
            "no launcher, or one of an earlier release: who is missing or fails first is not told to all processes"
        )
        return Membership("", tuple(host if i == process.process_id else "" for i in range(process.num_processes)))
    membership, met = peers.meet(
        process.process_id,
        process.num_processes,
        address,
        configuration=configuration_hash,
        versions=host_check.versions(),
        heartbeat_seconds=heartbeat_seconds,
    )
    on_met(met)
    return membership


def _start_jax(process: DistributedProcess, heartbeat_seconds: int) -> None:
    name, _, port_text = process.coordinator.rpartition(":")
    port = int(port_text)
    # JAX's handler would swallow SIGTERM; ours receives it in every phase.
    jax.config.update("jax_enable_preemption_service", False)
    bind = ports.bind_host(name)
    jax.distributed.initialize(
        coordinator_address=process.coordinator,
        num_processes=process.num_processes,
        process_id=process.process_id,
        cluster_detection_method="deactivate",
        initialization_timeout=INITIALIZATION_SECONDS,
        heartbeat_timeout_seconds=max(JAX_HEARTBEATS * heartbeat_seconds, JAX_LEAST_HEARTBEAT_SECONDS),
        shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        coordinator_bind_address=f"{bind}:{port}" if bind else None,
    )


def _attempt_id(process: Process, nonce: str) -> str:
    in_place = f".{process.in_place_attempt}" if process.in_place_attempt else ""
    return f"{process.incarnation}.{process.attempt}{in_place}-{nonce}"
