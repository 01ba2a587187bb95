"""What processes say to each other before JAX starts, and what follows from it. Pure.

One JSON object a line, bounded in size. Nothing in them is trusted beyond naming processes.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tpujob_trainer import errors

MAX_HOSTS_BYTES = 2**22
"""Of the names of all hosts."""
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
    """Host name of each process."""

    def packed(self) -> dict[str, str]:
        """As it is sent: the names of thousands of hosts differ by a few digits, and everybody gets all of them."""
        names = zlib.compress(json.dumps(self.hosts).encode(), 9)
        return {"nonce": self.nonce, "hosts": base64.b64encode(names).decode()}

    @classmethod
    def unpacked(cls, values: Mapping[str, Any]) -> Membership:
        """The membership that `packed` describes.

        Raises:
            ValueError: it is something else.
        """
        unpack = zlib.decompressobj()
        try:
            names = unpack.decompress(base64.b64decode(values["hosts"], validate=True), MAX_HOSTS_BYTES)
        except (zlib.error, TypeError) as error:
            raise ValueError("not a membership") from error
        hosts = json.loads(names)
        if not isinstance(hosts, list):
            raise ValueError("not a membership")  # noqa: TRY004 - what came from the network is a wrong value
        return cls(str(values["nonce"]), tuple(map(str, hosts)))


def missing(positions: Sequence[str], arrived: Mapping[int, Hello], limit_seconds: float) -> errors.PeersMissingError:
    """The error that names each process that did not come. `positions[i]` says where process i should be."""
    absent = [f"process {i} ({positions[i]})" for i in range(len(positions)) if i not in arrived]
    return errors.PeersMissingError(
        f"{len(absent)} of {len(positions)} processes did not come within {limit_seconds:g} s: {_listed(absent)}; "
        "see whether their pods are scheduled, and whether their logs end before this"
    )


def _listed(names: Sequence[str]) -> str:
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
