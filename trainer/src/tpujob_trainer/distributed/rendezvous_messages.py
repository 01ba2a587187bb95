"""What processes say to each other before JAX starts, and what follows from it. Pure.

One JSON object a line, bounded in size. Nothing in them is trusted beyond naming processes.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from tpujob_trainer import errors

MAX_PROCESSES = 2**20
MAX_NAMED = 20
"""Processes that a message names one by one."""


@dataclasses.dataclass(frozen=True)
class Hello:
    """What a process says about itself."""

    process_id: int
    run: str
    """Job, incarnation and attempt: a process of another one is a left-over."""
    host: str
    configuration: str
    """Hash of the configuration that it was given."""
    versions: Mapping[str, str]
    nonce: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    """Tells apart two processes that give the same id."""

    @classmethod
    def parse(cls, line: bytes) -> Hello:
        """The hello in a line from the network.

        Raises:
            ValueError: it is something else.
        """
        try:
            values = json.loads(line)
        except RecursionError:
            values = None
        if not isinstance(values, dict) or values.keys() != {f.name for f in dataclasses.fields(cls)}:
            raise ValueError("not a hello")
        versions = values["versions"]
        texts = [values[k] for k in ("run", "host", "configuration", "nonce")]
        if not isinstance(versions, dict) or not all(isinstance(t, str) for t in (*texts, *versions.values())):
            raise ValueError("not a hello")
        if type(values["process_id"]) is not int:
            raise ValueError("not a hello")
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Membership:
    """What everybody goes on with."""

    nonce: str
    """Eight hexadecimal digits, new each time."""
    hosts: tuple[str, ...]
    """Host name of each process. Process 0 has all; another process has its own and that of process 0, else ""."""

    def to_values(self) -> dict[str, Any]:
        """As every other process is sent it: without all names, whose bytes would grow with the square of processes."""
        return {"nonce": self.nonce, "processes": len(self.hosts), "lead": self.hosts[0]}

    @classmethod
    def of_values(cls, values: Mapping[str, Any], own: Hello) -> Membership:
        """The membership of another process than 0, from `to_values`.

        Raises:
            ValueError: it is something else.
        """
        processes, lead = values["processes"], values["lead"]
        if type(processes) is not int or not own.process_id < processes <= MAX_PROCESSES or not isinstance(lead, str):
            raise ValueError("not a membership")
        hosts = [""] * processes
        hosts[0], hosts[own.process_id] = lead, own.host
        return cls(str(values["nonce"]), tuple(hosts))


def process_name(process_id: int, hosts: Sequence[str]) -> str:
    """A process as people look for it: "process 3 on host h", without the host where it is not known."""
    host = hosts[process_id] if 0 <= process_id < len(hosts) else ""
    return f"process {process_id} on host {host}" if host else f"process {process_id}"


def missing(positions: Sequence[str], arrived: Mapping[int, Hello], limit_seconds: float) -> errors.PeersMissingError:
    """The error that names each process that did not come. `positions[i]` says where process i should be."""
    absent = [f"process {i} ({positions[i]})" for i in range(len(positions)) if i not in arrived]
    return errors.PeersMissingError(
        f"{len(absent)} of {len(positions)} processes did not come within {limit_seconds:g} s: {listed(absent)}; "
        "see whether their pods are scheduled, and whether their logs end before this"
    )


def listed(names: Sequence[str]) -> str:
    """The first twenty names, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def disagreement(arrived: Mapping[int, Hello]) -> errors.ConfigurationError | None:
    """The error that names who runs something else than process 0, or None."""
    own = arrived[0]
    for other in (arrived[i] for i in sorted(arrived)):
        pair = f"process {other.process_id} on host {other.host} and process 0 on host {own.host}"
        if other.configuration != own.configuration:
            return errors.ConfigurationError(
                f"{pair} have different configurations ({other.configuration} and {own.configuration}); "
                "all processes of a run must be given the same TPUJOB_CONFIG"
            )
        if dict(other.versions) != dict(own.versions):
            names = sorted(other.versions.keys() | own.versions.keys())
            differ = [
                f"{n} {other.versions.get(n, 'none')} and {own.versions.get(n, 'none')}"
                for n in names
                if other.versions.get(n) != own.versions.get(n)
            ]
            return errors.ConfigurationError(
                f"{pair} have different versions: {', '.join(differ)}; all processes of a run must use the same image; "
                "name it by digest, for a tag may have moved between two pulls"
            )
    return None


def to_line(values: Mapping[str, Any]) -> bytes:
    """The values as one line."""
    return json.dumps(values).encode() + b"\n"
