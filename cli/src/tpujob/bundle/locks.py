"""Lock files: their pins, as blocks of text that pip understands. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """One requirement of a lock file."""

    name: str
    """As the lock file spells it."""
    version: str
    text: str
    """Its lines, with marker and hashes."""

    @property
    def hashes(self) -> frozenset[str]:
        """SHA-256 of each file that may be installed for it, on any platform."""
        return frozenset(HASH.findall(self.text))

    @property
    def marker(self) -> str | None:
        """The environment marker; None: it is needed everywhere."""
        condition = self.text.splitlines()[0].partition(" --hash")[0].partition(";")[2]
        return condition.rstrip("\\").strip() or None

    @property
    def unconditional(self) -> str:
        """The requirement without its marker."""
        return " ".join(
            [f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in sorted(self.hashes))]
        )

    @property
    def wheel_prefix(self) -> str:
        """The start of its wheels' names, in lower case."""
        return f"{re.sub(r'[-_.]+', '_', self.name)}-{self.version}-".lower()


def read_lock(text: str) -> list[Pin]:
    """The pins of a lock file, in its order.

    Raises:
        ValueError: A line is not part of a pinned requirement with hashes.
    """
    pins = []
    for block in _blocks(text):
        match = PIN.match(block)
        if match is None or not HASH.search(block):
            raise ValueError(f"{block.splitlines()[0]!r} is not pinned with hashes")
        pins.append(Pin(match["name"], match["version"], block))
    return pins


def union(locks: Iterable[Sequence[Pin]]) -> list[Pin]:
    """Every pin of the lock files once, by name.

    Raises:
        ValueError: Two lock files disagree; they were not made together.
    """
    found: dict[str, Pin] = {}
    for pin in (pin for lock in locks for pin in lock):
        other = found.setdefault(pin.name, pin)
        if other.text != pin.text:
            raise ValueError(f"{pin.name} is pinned to {other.version} and, otherwise, to {pin.version}")
    return [found[name] for name in sorted(found)]


def own_lock(wheels: Mapping[str, str], version: str, distributions: Sequence[str]) -> str:
    """A lock file of our own distributions.

    Args:
        wheels: SHA-256 of each wheel, by distribution.
        version: Of all of them.
        distributions: Those to pin.
    """
    return "".join(f"{name}=={version} \\\n    --hash=sha256:{wheels[name]}\n" for name in distributions)


def _blocks(text: str) -> Iterator[str]:
    """Requirements with their continuation lines, without comments and empty lines between them."""
    block: list[str] = []
    for line in text.splitlines():
        if not block and (not line.strip() or line.startswith("#")):
            continue
        block.append(line)
        if not line.endswith("\\"):
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)
