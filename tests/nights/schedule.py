"""What happens in a night, from its seed alone: jobs with their kinds, and blows with their times.

A blow never depends on another one, so that any part of the list is a night, too, and a shorter history of a violation
can be looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

type Spec = dict[str, Any]

ARRIVALS = 0.4
"""Part of the night in which jobs are created."""
SECONDS_PER_BLOW = 4.0
FIRST_BLOW_SECONDS = 4.0
QUEUE = "night"
SECRET = "night"

COMMAND: Spec = {"accelerator": "cpu:2x1", "image": "example.com/image", "command": ["train"]}
TRAINER: Spec = {
    "accelerator": "cpu:2x1",
    "checkpointDir": "gs://bucket/night",
    "trainer": {
        "model": {"preset": "tiny"},
        "data": {"path": "/data", "tokenizer": "bytes"},
        "batchSize": 8,
        "steps": 100000,
    },
}
EXTRACTION: Spec = {
    "accelerator": "cpu:1x1",
    "workers": 3,
    "checkpointDir": "gs://bucket/features",
    "trainer": {
        "task": "extract",
        "model": {"preset": "tiny"},
        "data": {"path": "/data"},
        "extract": {"layers": [1]},
    },
}
CPU: Spec = {"resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}

KINDS: Mapping[str, Spec] = {
    "trainer": TRAINER,
    "command": {**COMMAND, "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": "key"}}}]},
    "loop": {**COMMAND, "accelerator": "cpu:1x1", "slices": 2, "checkpointDir": "gs://bucket/loop"},
    "extract": EXTRACTION,
    "in-place": {**TRAINER, "inPlaceRestarts": 2},
    "queued": {**COMMAND, **CPU, "queue": QUEUE, "inPlaceRestarts": 1},
    "elastic": {
        **COMMAND,
        **CPU,
        "accelerator": "cpu:1x1",
        "slices": 2,
        "minSlices": 1,
        "shrinkAfterSeconds": 5,
        "checkpointDir": "gs://bucket/elastic",
    },
    "elastic-queued": {
        **COMMAND,
        **CPU,
        "accelerator": "cpu:1x1",
        "slices": 2,
        "minSlices": 1,
        "shrinkAfterSeconds": 10,
        "checkpointDir": "gs://bucket/elastic",
        "queue": QUEUE,
    },
}
"""Every kind of job, and its spec."""

INFRASTRUCTURE: Mapping[str, tuple[int, float, float]] = {
    "kill-operator": (4, 0.0, 3.0),
    "freeze-operator": (2, 1.0, 12.0),
    "kill-api-server": (1, 0.0, 0.0),
    "freeze-api-server": (2, 1.0, 8.0),
    "kill-etcd": (1, 0.0, 0.0),
    "freeze-etcd": (1, 1.0, 5.0),
    "freeze-jobset": (2, 1.0, 15.0),
    "freeze-jobs": (1, 1.0, 6.0),
    "refuse": (3, 1.0, 10.0),
    "cut-watches": (3, 0.0, 0.0),
    "silence-watches": (1, 1.0, 8.0),
    "compact": (1, 0.0, 0.0),
    "take-rights": (2, 2.0, 15.0),
    "wrong-clock": (1, 5.0, 30.0),
    "take-quota": (2, 3.0, 20.0),
}
"""Blows to what all jobs share: weight, and how long one lasts, in seconds."""

TO_A_JOB: Mapping[str, tuple[int, float, float]] = {
    "crash": (6, 0.0, 0.0),
    "stop": (3, 0.0, 0.0),
    "fatal": (1, 0.0, 0.0),
    "evict": (4, 0.0, 0.0),
    "delete-pod": (5, 0.0, 0.0),
    "lose-node": (2, 5.0, 30.0),
    "hang": (2, 2.0, 15.0),
    "delete-jobset": (2, 0.0, 0.0),
    "delete-policy": (1, 0.0, 0.0),
    "delete-secret": (1, 2.0, 15.0),
    "edit": (4, 0.0, 0.0),
    "suspend": (4, 2.0, 15.0),
    "retry": (2, 0.0, 0.0),
    "delete": (2, 0.0, 0.0),
}
"""Blows to one job: weight, and how long one lasts, in seconds; a suspended job is resumed at the end."""

THIN = ("kill-operator", "cut-watches", "crash", "delete-pod", "suspend")
"""For the short night that is a test."""

CRASH_CODES = (1, 134, 137, 139)
REFUSALS = (409, 429, 500, 503)
CLOCKS = (-600, -120, 120, 600)
NUMBERS: Mapping[str, tuple[int, ...]] = {
    "crash": CRASH_CODES,
    "fatal": (76, 77, 78),
    "refuse": REFUSALS,
    "wrong-clock": CLOCKS,
    "take-rights": tuple(range(12)),
    "edit": tuple(range(1000)),
}
"""What else is drawn for a kind of blow: an exit code, a status, seconds, a rule, an argument."""


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job of the night."""

    name: str
    kind: str
    created_at: float
    """Seconds after the start of the night."""
    lasts: float
    """Seconds that its program has to run until it is done."""

    @property
    def spec(self) -> Spec:
        """As it is created."""
        placed = (
            {"nodeSelector": {"night": self.name}} if self.kind == "elastic" else {"nodeSelector": {"night": "all"}}
        )
        return {**KINDS[self.kind], **placed}


@dataclass(frozen=True, kw_only=True, order=True)
class Blow:
    """One blow."""

    at: float
    """Seconds after the start of the night."""
    kind: str
    target: str = ""
    """Name of a job; empty for what all share."""
    seconds: float = 0.0
    """How long it lasts."""
    number: int = 0
    """What `NUMBERS` has for the kind."""
    pod: int = 0
    """Which of the job's pods, modulo their number."""

    def __str__(self) -> str:
        words = [f"{self.at:6.1f} s  {self.kind}", self.target]
        words += [f"for {self.seconds:.1f} s"] if self.seconds else []
        words += [f"number {self.number}"] if self.kind in NUMBERS else []
        return " ".join(word for word in words if word)


@dataclass(frozen=True, kw_only=True)
class Night:
    """All that is done to the system; the rest of the night is its own."""

    seed: int
    seconds: float
    jobs: tuple[PlannedJob, ...]
    blows: tuple[Blow, ...]

    def with_blows(self, blows: list[Blow]) -> Night:
        """The same jobs with other blows, and those jobs alone that are hit, if any is."""
        hit = {blow.target for blow in blows if blow.target}
        jobs = tuple(job for job in self.jobs if job.name in hit) or self.jobs
        return replace(self, jobs=jobs, blows=tuple(blows))


def make_night(
    seed: int, *, seconds: float, jobs: int, kinds: tuple[str, ...] = (), blows: tuple[str, ...] = ()
) -> Night:
    """The night of a seed.

    Args:
        seed: The same one makes the same night.
        seconds: How long blows fall.
        jobs: How many there are.
        kinds: Of jobs; all by default.
        blows: Kinds of blows; all by default.
    """
    random = Random(seed)  # noqa: S311 — to be repeated, not to be secret
    names = kinds or tuple(KINDS)
    offset = random.randrange(len(names))
    planned = tuple(
        PlannedJob(
            name=f"{(kind := names[(offset + index) % len(names)])}-{index}",
            kind=kind,
            created_at=round(random.uniform(0, ARRIVALS * seconds), 1),
            lasts=round(random.uniform(0.2, 1.5) * seconds, 1),
        )
        for index in range(jobs)
    )
    weights = {kind: row for kind, row in {**INFRASTRUCTURE, **TO_A_JOB}.items() if not blows or kind in blows}
    struck, at = [], FIRST_BLOW_SECONDS
    while at < seconds:
        struck.append(_draw(random, at, weights, planned))
        at += random.expovariate(1 / SECONDS_PER_BLOW)
    return Night(seed=seed, seconds=seconds, jobs=planned, blows=tuple(struck))


def _draw(
    random: Random, at: float, weights: Mapping[str, tuple[int, float, float]], jobs: tuple[PlannedJob, ...]
) -> Blow:
    (kind,) = random.choices(list(weights), [weight for weight, _, _ in weights.values()])
    _, least, most = weights[kind]
    target = random.choice(jobs).name if kind in TO_A_JOB else ""
    number = random.choice(NUMBERS.get(kind, (0,)))
    seconds = round(random.uniform(least, most), 1)
    return Blow(at=round(at, 1), kind=kind, target=target, seconds=seconds, number=number, pod=random.randrange(8))
