"""A week of a small fleet, hour by hour: who held chips in which phase, and what process 0 told of its time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = 168
SAMPLE_SECONDS = 300
"""Of no more use are more: that is the step in which time is measured."""
type Hours = tuple[float, float]


@dataclass(frozen=True)
class Attempt:
    """One process 0, from its start to its end."""

    spent: tuple[tuple[float, float, str], ...]
    """From hour, to hour, category; one after the other."""
    lost: float = 0
    """Hours of earlier steps that it finds to be lost, at its start."""
    is_new_run: bool = False
    """Whether it knows nothing of earlier attempts."""


@dataclass(frozen=True)
class Job:
    """What the operator and the processes of a job told."""

    name: str
    chips: int
    accelerator: str
    phases: tuple[tuple[float, float, str], ...]
    """From hour, to hour, phase."""
    queue: str = ""
    owner: str = ""
    spot: bool = False
    attempts: tuple[Attempt, ...] = ()
    restarts: tuple[tuple[float, str], ...] = ()
    """At which hour, and why."""
    other_queue: tuple[float, str] | None = None
    """From which hour it is in another."""
    namespace: str = field(default="research")


JOBS = (
    Job(
        "llama",
        256,
        "v5e-256",
        queue="large",
        owner="ana",
        phases=(
            (0, 2, "Queued"),
            (2, 3, "Starting"),
            (3, 50, "Running"),
            (50, 51, "Restarting"),
            (51, 52, "Starting"),
            (52, 100, "Running"),
            (100, 101, "Restarting"),
            (101, 102, "Starting"),
            (102, 169, "Running"),
        ),
        attempts=(
            Attempt(
                (
                    (2.5, 2.75, "start"),
                    (2.75, 3, "compile"),
                    (3, 10, "step"),
                    (10, 12, "data_wait"),
                    (12, 20, "step"),
                    (20, 21, "checkpoint"),
                    (21, 50, "step"),
                )
            ),
            Attempt(((51.5, 52, "restore"), (52, 60, "step"), (60, 62, "evaluation"), (62, 100, "step")), lost=4),
            Attempt(((101.5, 102, "start"), (102, 169, "step")), lost=2),
        ),
        restarts=((50, "Crash"), (100, "Disruption")),
    ),
    # It began a day before the week, and its first hours belong to another report.
    Job(
        "small",
        16,
        "v5e-16",
        queue="small",
        owner="ben",
        spot=True,
        phases=((-24, 40, "Running"),),
        attempts=(Attempt(((-24, 30, "step"), (30, 34, "data_wait"), (34, 40, "step"))),),
    ),
    Job(
        "stuck",
        8,
        "v6e-8",
        namespace="vision",
        phases=((10, 20, "Running"), (20, 30, "Stalled"), (30, 34, "Running")),
        attempts=(Attempt(((10, 34, "step"),)),),
    ),
    # A program of one's own that reports nothing, moved to another queue half-way.
    Job(
        "own", 8, "v4-16", namespace="vision", queue="a", phases=((100, 110, "Running"),), other_queue=(105, "b"),
    ),
    Job("late", 64, "v5e-64", namespace="vision", owner="cem", phases=((160, 169, "WaitingForCapacity"),)),
    # Deleted and made anew under its name: what the first one reported is gone.
    Job(
        "again",
        4,
        "v5e-4",
        owner="ben",
        phases=((0, 10, "Running"), (20, 26, "Running")),
        attempts=(Attempt(((0, 10, "step"),)), Attempt(((20, 26, "step"),), is_new_run=True)),
    ),
)  # fmt: skip
LEADERS = ((-48, 84, "operator-0"), (84, HOURS + 1, "operator-1"))
"""From hour, to hour, pod of the operator that leads."""


def open_metrics() -> str:
    """All samples of the week and of two days before it, with times, as promtool reads them."""
    lines = [line for job in JOBS for line in (*_of_operator(job), *_of_process(job))]
    for begin, end, pod in LEADERS:
        lines += [_sample("tpujob_operator_leader", {"pod": pod}, 1, second) for second, _ in _times(begin, end)]
    return "\n".join([*lines, "# EOF", ""])


def _of_operator(job: Job) -> Iterator[str]:
    name = {"job_namespace": job.namespace, "job_name": job.name}
    for second, hour in _times(job.phases[0][0], job.phases[-1][1]):
        pod = next(pod for begin, end, pod in LEADERS if begin <= hour < end)
        queue = job.other_queue[1] if job.other_queue and hour >= job.other_queue[0] else job.queue
        for phase in (phase for begin, end, phase in job.phases if begin <= hour < end):
            labels = name | {"accelerator": job.accelerator, "queue": queue, "owner": job.owner, "pod": pod}
            labels |= {"spot": str(job.spot).lower(), "phase": phase}
            yield _sample("tpujob_operator_job_phase_chips", labels, job.chips, second)
        for cause in ("Crash", "Disruption", "Unexplained", "Capacity"):
            count = sum(hour >= at and cause == why for at, why in job.restarts)
            yield _sample("tpujob_operator_job_restarts", name | {"cause": cause, "pod": pod}, count, second)


def _of_process(job: Job) -> Iterator[str]:
    before: dict[str, float] = {}
    for number, attempt in enumerate(job.attempts):
        begin, end = attempt.spent[0][0], attempt.spent[-1][1]
        known = {} if attempt.is_new_run else before
        known = known | {
            "step": known.get("step", 0) - attempt.lost,
            "lost_steps": known.get("lost_steps", 0) + attempt.lost,
        }
        for second, hour in _times(begin, end):
            for category, hours in _spent(known, attempt, hour).items():
                labels = {"namespace": job.namespace, "tpujob": job.name, "pod": f"{job.name}-{number}"}
                yield _sample("tpujob_goodput_seconds", labels | {"category": category}, hours * 3600, second)
        before = _spent(known, attempt, end)


def _spent(known: dict[str, float], attempt: Attempt, hour: float) -> dict[str, float]:
    """Hours by category until an hour."""
    found = dict(known)
    for begin, end, category in attempt.spent:
        found[category] = found.get(category, 0) + min(max(hour - begin, 0), end - begin)
    return found


def _times(begin: float, end: float) -> Iterator[tuple[int, float]]:
    """Unix time and hour of the samples from an hour up to another one."""
    monday = int(MONDAY.timestamp())
    for second in range(int(begin * 3600), int(end * 3600), SAMPLE_SECONDS):
        yield monday + second, second / 3600


def _sample(name: str, labels: dict[str, str], value: float, second: int) -> str:
    return f"{name}{{{','.join(f'{key}="{text}"' for key, text in labels.items())}}} {value:.10g} {second}"
