"""What Prometheus is asked about chips: one place for the command line, the chart's dashboard and its rules.

- Time is measured in steps of five minutes, so that a week of hundreds of jobs is seconds of work for Prometheus. What
  is shorter counts as often as a step meets it.
- Chip-hours are what the operator says of machines held. What they went to is what process 0 of a job says of its
  time, in proportion.
- Labels are copied with `label_join`, not `label_replace`: a `$1` would be a variable of Grafana.
"""

from __future__ import annotations

from tpujob_resource.models.status import HOLDS_MACHINES, WAITS_FOR_MACHINES, Phase

STEP_SECONDS = 300
RECORDED_SECONDS = 60
"""Between two samples of a recorded series."""
STEP = f"{STEP_SECONDS // 60}m"

JOB = "job_namespace, job_name"
LABELS = (*JOB.split(", "), "accelerator", "queue", "owner", "spot", "phase")
"""Of chips."""

WENT_BY_CATEGORY = {
    "training": ("step",),
    "evaluation": ("evaluation",),
    "starting": ("start", "restore", "compile"),
    "saving": ("checkpoint",),
    "data": ("data_wait",),
    "ending": ("end",),
    "lost": ("lost_steps",),
}
"""What chips went to → categories of `tpujob_goodput_seconds`. `between_attempts` is in the phases of the operator."""
USEFUL = ("training", "evaluation")
EVERY = tuple(category for categories in WENT_BY_CATEGORY.values() for category in categories)


def chips(*, phases: tuple[Phase, ...] = ()) -> str:
    """Chips that jobs hold or wait for now, by LABELS.

    Args:
        phases: only those of jobs in them; all where none is named.
    """
    selector = f'{{phase=~"{"|".join(phases)}"}}' if phases else ""
    return f"max by ({', '.join(LABELS)}) (tpujob_operator_job_phase_chips{selector})"


def hours(inner: str, span: str) -> str:
    """Chip-hours of chips over a span, as in 7d; labels are kept."""
    return f"sum_over_time(({inner})[{span}:{STEP}]) * {STEP_SECONDS} / 3600"


def hours_by_phase(span: str) -> str:
    """Chip-hours held or waited for, by LABELS."""
    return hours(chips(), span)


def restarts(span: str) -> str:
    """Restarts of each job by cause."""
    return f"round(increase((max by ({JOB}, cause) (tpujob_operator_job_restarts))[{span}:{STEP}]))"


def hours_by_use(span: str, went: tuple[str, ...] = tuple(WENT_BY_CATEGORY)) -> str:
    """Chip-hours held, by job and `went`: those of which process 0 reports what they went to.

    Args:
        span: as in 7d.
        went: only those that went to one of these.
    """
    reported = _seconds(span, tuple(category for word in went for category in WENT_BY_CATEGORY[word]))
    held = f"sum by ({JOB}) ({chips(phases=HOLDS_MACHINES)})"
    held_seconds = f"count_over_time(({held} > 0)[{span}:{STEP}]) * {STEP_SECONDS}"
    reported_seconds = f"sum by ({JOB}) ({_seconds(span, EVERY)})"
    # Machines are held for longer than a process reports, which reports nothing before it starts and after its end.
    seconds = f"({reported_seconds} > ({held_seconds}) or {held_seconds})"
    return f"sum by ({JOB}, went) ({_named(reported)} * on ({JOB}) group_left () (({hours(held, span)}) / {seconds}))"


def lost_hours(span: str) -> str:
    """Chip-hours of each job that are known to have gone to something else than training and evaluation."""
    reported = f"sum by ({JOB}) ({hours_by_use(span, tuple(word for word in WENT_BY_CATEGORY if word not in USEFUL))})"
    return _sum(reported, hours(f"sum by ({JOB}) ({chips(phases=(Phase.RESTARTING, Phase.STALLED))})", span))


def lost_to_restarts(span: str) -> str:
    """Chip-hours of steps that were made in vain and of machines held between two attempts, by job and cause."""
    between = hours(f"sum by ({JOB}) ({chips(phases=(Phase.RESTARTING,))})", span)
    lost = _sum(f"sum by ({JOB}) ({hours_by_use(span, ('lost',))})", between)
    counted = f"({restarts(span)} > 0)"
    return f"{counted} / on ({JOB}) group_left () sum by ({JOB}) ({counted}) * on ({JOB}) group_left () ({lost})"


def seen_seconds(span: str) -> str:
    """Seconds of the span in which an operator was scraped: what was held in the others is not known."""
    return f"count_over_time((count(tpujob_operator_leader))[{span}:{STEP}]) * {STEP_SECONDS}"


def recorded() -> dict[str, str]:
    """Recording rules: name → expression. `sum_over_time` of them gives the same numbers."""
    return {
        "tpujob:job_phase_chips:max": chips(),
        "tpujob:chips_held:sum": f"sum by (job_namespace, queue, owner) ({chips(phases=HOLDS_MACHINES)})",
        "tpujob:chips_used:sum": f"sum by (job_namespace, queue, owner) ({chips(phases=(Phase.RUNNING,))})",
        "tpujob:chips_waiting:sum": f"sum by (job_namespace, queue, owner) ({chips(phases=WAITS_FOR_MACHINES)})",
        "tpujob:job_goodput_seconds:max": _goodput(EVERY),
    }


def _sum(first: str, second: str) -> str:
    """The sum for jobs in both, and what there is for jobs in one."""
    return f"(({first}) + ({second})) or ({first}) or ({second})"


def _goodput(categories: tuple[str, ...]) -> str:
    """Seconds of each run so far by category; pods of two attempts share no moment."""
    series = f'tpujob_goodput_seconds{{category=~"{"|".join(categories)}"}}'
    return f"max by ({JOB}, category) ({_with_job(series)})"


def _with_job(series: str) -> str:
    """With the labels that the operator has for a job, in place of those of the PodMonitor."""
    return f'label_join(label_join({series}, "job_namespace", "", "namespace"), "job_name", "", "tpujob")'


def _seconds(span: str, categories: tuple[str, ...]) -> str:
    """Seconds that each job spent in a span, by category.

    A job whose sum is smaller than before the span is another run of the same name, and began at zero.
    """
    inner = f"({_goodput(categories)})[{span}:{STEP}]"
    now, before = f"last_over_time({inner})", f"last_over_time({inner} offset {span})"
    every = f"({_goodput(EVERY)})[{span}:{STEP}]"
    same = f"sum by ({JOB}) (last_over_time({every})) >= sum by ({JOB}) (last_over_time({every} offset {span}))"
    return f"clamp_min({now} - ({before} and on ({JOB}) ({same})) or {now}, 0)"


def _named(seconds: str) -> str:
    """With what chips went to as the label `went`."""
    for name, categories in WENT_BY_CATEGORY.items():
        seconds = f'label_replace({seconds}, "went", "{name}", "category", "{"|".join(categories)}")'
    return seconds
