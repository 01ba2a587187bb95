"""Prometheus queries about chips, shared by the chart's dashboard and its recording rules.

- Time is sampled in steps of five minutes, so that a week of hundreds of jobs takes Prometheus seconds. A shorter state
  counts only if a sample falls into it.
- Chip-hours come from the operator's metric of the machines that jobs hold. What they went to is in proportion to the
  time that process 0 of a job reports.
- Labels are copied with `label_join`, not `label_replace`: Grafana would take a `$1` for a variable.
"""

from tpujob_resource.models.phases import HOLDS_MACHINES, WAITS_FOR_MACHINES, Phase

STEP_SECONDS = 300
RECORDED_SECONDS = 60
"""Between two samples of a recorded series."""
STEP = f"{STEP_SECONDS // 60}m"

JOB = "job_namespace, job_name"
LABELS = (*JOB.split(", "), "accelerator", "queue", "owner", "spot", "phase")
"""The labels of `chips`."""

WENT_BY_CATEGORY = {
    "training": ("step",),
    "evaluation": ("evaluation",),
    "starting": ("start", "restore", "compile"),
    "saving": ("checkpoint",),
    "data": ("data_wait",),
    "ending": ("end",),
    "lost": ("lost_steps",),
}
"""What chips went to → categories of `tpujob_goodput_seconds`. The operator's phases cover `between_attempts`."""
USEFUL = ("training", "evaluation")
EVERY = tuple(category for categories in WENT_BY_CATEGORY.values() for category in categories)


def chips(*, phases: tuple[Phase, ...] = ()) -> str:
    """Chips that jobs hold or wait for now, by LABELS.

    Args:
        phases: only those of jobs in these phases; empty: all.
    """
    selector = f'{{phase=~"{"|".join(phases)}"}}' if phases else ""
    return f"max by ({', '.join(LABELS)}) (tpujob_operator_job_phase_chips{selector})"


def hours(inner: str, span: str) -> str:
    """Chip-hours of an expression for chips, over a span as in 7d; labels are kept."""
    return f"sum_over_time(({inner})[{span}:{STEP}]) * {STEP_SECONDS} / 3600"


def hours_by_phase(span: str) -> str:
    """Chip-hours held or waited for, by LABELS."""
    return hours(chips(), span)


def restarts(span: str) -> str:
    """Restarts of each job by cause."""
    return f"round(increase((max by ({JOB}, cause) (tpujob_operator_job_restarts))[{span}:{STEP}]))"


def hours_by_use(span: str, went: tuple[str, ...] = tuple(WENT_BY_CATEGORY)) -> str:
    """Chip-hours held, by job and `went`, as far as process 0 reports what they went to.

    Args:
        span: as in 7d.
        went: only those that went to one of these.
    """
    reported = _seconds(span, tuple(category for word in went for category in WENT_BY_CATEGORY[word]))
    held = f"sum by ({JOB}) ({chips(phases=HOLDS_MACHINES)})"
    held_seconds = f"count_over_time(({held} > 0)[{span}:{STEP}]) * {STEP_SECONDS}"
    reported_seconds = f"sum by ({JOB}) ({_seconds(span, EVERY)})"
    # Machines are held for longer than a process reports: it reports nothing before its start and after its end.
    seconds = f"({reported_seconds} > ({held_seconds}) or {held_seconds})"
    return f"sum by ({JOB}, went) ({_named(reported)} * on ({JOB}) group_left () (({hours(held, span)}) / {seconds}))"


def lost_hours(span: str) -> str:
    """Chip-hours of each job that are known to have gone to other things than training and evaluation."""
    reported = f"sum by ({JOB}) ({hours_by_use(span, tuple(word for word in WENT_BY_CATEGORY if word not in USEFUL))})"
    return _sum(reported, hours(f"sum by ({JOB}) ({chips(phases=(Phase.RESTARTING, Phase.STALLED))})", span))


def lost_to_restarts(span: str) -> str:
    """Chip-hours of lost steps and of machines held between two attempts, by job and cause of restarts."""
    between = hours(f"sum by ({JOB}) ({chips(phases=(Phase.RESTARTING,))})", span)
    lost = _sum(f"sum by ({JOB}) ({hours_by_use(span, ('lost',))})", between)
    counted = f"({restarts(span)} > 0)"
    return f"{counted} / on ({JOB}) group_left () sum by ({JOB}) ({counted}) * on ({JOB}) group_left () ({lost})"


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
    """The sum for jobs in both expressions, and the one value for jobs in only one."""
    return f"(({first}) + ({second})) or ({first}) or ({second})"


def _goodput(categories: tuple[str, ...]) -> str:
    """Seconds of each run so far by category; pods of two attempts do not overlap in time."""
    series = f'tpujob_goodput_seconds{{category=~"{"|".join(categories)}"}}'
    return f"max by ({JOB}, category) ({_with_job(series)})"


def _with_job(series: str) -> str:
    """The series with the operator's labels for a job, copied from those of the PodMonitor."""
    return f'label_join(label_join({series}, "job_namespace", "", "namespace"), "job_name", "", "tpujob")'


def _seconds(span: str, categories: tuple[str, ...]) -> str:
    """Seconds that each job spent in a span, by category.

    A job whose sum is smaller than before the span is another run of the same name, which counts from zero.
    """
    inner = f"({_goodput(categories)})[{span}:{STEP}]"
    now, before = f"last_over_time({inner})", f"last_over_time({inner} offset {span})"
    every = f"({_goodput(EVERY)})[{span}:{STEP}]"
    same = f"sum by ({JOB}) (last_over_time({every})) >= sum by ({JOB}) (last_over_time({every} offset {span}))"
    return f"clamp_min({now} - ({before} and on ({JOB}) ({same})) or {now}, 0)"


def _named(seconds: str) -> str:
    """The seconds with the label `went`, derived from their category."""
    for name, categories in WENT_BY_CATEGORY.items():
        seconds = f'label_replace({seconds}, "went", "{name}", "category", "{"|".join(categories)}")'
    return seconds
