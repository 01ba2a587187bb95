"""What was seen and done in a night, in the order of one steady clock."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.nights.schedule import Blow

type Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One version of an object, when a watch of our own showed it."""

    at: float
    kind: str
    """`job`, `jobset`, `pod`, `event` or another one that `Observer` watches."""
    name: str
    uid: str
    facts: Facts = field(default_factory=dict)
    is_gone: bool = False


@dataclass(frozen=True, kw_only=True)
class PodEnd:
    """How the kubelet ended a pod."""

    at: float
    pod: str
    job: str
    jobset: str
    """Uid of its JobSet."""
    attempt: int
    exit_code: int
    why: str
    """The kind of blow; `asked` for a pod that was deleted by others, `peer` for one that missed a peer, `finished`."""


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A blow that fell."""

    at: float
    until: float
    blow: Blow
    node: str = ""
    """The node that was lost."""


@dataclass(kw_only=True)
class History:
    """Everything that invariants are told."""

    seen: list[Seen] = field(default_factory=list)
    ends: list[PodEnd] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    writes: dict[str, int] = field(default_factory=dict)
    """The operator's writes about a job, by its name, in the whole night."""
    rested_at: float = 0.0
    """When nothing had been done for long enough; then all jobs were deleted."""
    seconds: float = 0.0
    """How long the night was, with its end."""
    own_ends: list[str] = field(default_factory=list)
    """Programs that ended although nobody killed them, and their last words."""

    def of(self, kind: str) -> list[Seen]:
        """All versions of objects of a kind."""
        return [each for each in self.seen if each.kind == kind]

    def versions(self, kind: str) -> dict[str, list[Seen]]:
        """The versions of each object of a kind, by its uid."""
        found: dict[str, list[Seen]] = {}
        for each in self.of(kind):
            found.setdefault(each.uid, []).append(each)
        return found

    def last(self, kind: str) -> list[Seen]:
        """The last version of each object of a kind that is still there."""
        return [versions[-1] for versions in self.versions(kind).values() if not versions[-1].is_gone]

    def statuses(self) -> Iterator[tuple[Seen, Facts, Facts]]:
        """Each change of a job's status: the later version, the earlier status and the later one."""
        for versions in self.versions("job").values():
            held = [each for each in versions if not each.is_gone]
            for earlier, later in itertools.pairwise(held):
                yield later, earlier.facts["status"], later.facts["status"]

    def until(self, at: float) -> History:
        """What was seen until then."""
        return replace(self, seen=[each for each in self.seen if each.at <= at])

    def lines(self) -> list[str]:
        """Everything as JSON, in the order of time."""
        parts: list[Seen | PodEnd | Struck] = [*self.seen, *self.ends, *self.struck]
        return [json.dumps(asdict(part)) for part in sorted(parts, key=lambda part: part.at)]
