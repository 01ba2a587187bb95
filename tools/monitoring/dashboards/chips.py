"""The use of chips, from the expressions of the recording rules."""

from tools.monitoring import promql
from tools.monitoring.grafana import Dashboard, Panel, Query, Row
from tpujob_resource.models.phases import HOLDS_MACHINES, WAITS_FOR_MACHINES, Phase

SPAN = "$__range"
"""The time range that is selected at the top of the page."""
IDLE = tuple(phase for phase in HOLDS_MACHINES if phase is not Phase.RUNNING)
HELD = promql.chips(phases=HOLDS_MACHINES)
EACH_JOB = "{{job_namespace}}/{{job_name}}"


def _held_by(label: str) -> Panel:
    return Panel(
        f"Chips held by {label.removeprefix('job_')}",
        [Query(f"sum by ({label}) ({HELD})", f"{{{{{label}}}}}")],
        stacked=True,
    )


DASHBOARD = Dashboard(
    "tpujob-chips",
    "tpujob / where the chips went",
    "Chips, chip-hours of the chosen time, and what they went to.",
    [
        Row(
            "Chips",
            [
                Panel(
                    "Used, idle, waited for",
                    [
                        Query(f"sum({promql.chips(phases=(Phase.RUNNING,))})", "used"),
                        Query(f"sum({promql.chips(phases=IDLE)})", "held, idle"),
                        Query(f"sum({promql.chips(phases=WAITS_FOR_MACHINES)})", "waited for"),
                    ],
                    text="Idle: held by jobs that start, restart, stop or stall.",
                    width=24,
                ),
                *(_held_by(label) for label in ("job_namespace", "queue", "owner")),
            ],
        ),
        Row(
            "Chip-hours of the chosen time",
            [
                Panel(
                    "By phase",
                    [Query(f"sum by (phase) ({promql.hours_by_phase(SPAN)})", "{{phase}}")],
                    kind="table",
                    text="Queued and WaitingForCapacity are waited for, the others held.",
                ),
                Panel(
                    "What they went to",
                    [Query(f"sum by (went) ({promql.hours_by_use(SPAN)})", "{{went}}")],
                    kind="table",
                    text="As processes report it: stalled steps are in training, and lost are steps made in vain.",
                ),
                Panel(
                    "By namespace, queue and owner",
                    [Query(f"sum by (job_namespace, queue, owner) ({promql.hours(HELD, SPAN)})")],
                    kind="table",
                ),
                Panel(
                    "Jobs that lost most",
                    [Query(f"topk(5, {promql.lost_hours(SPAN)})", EACH_JOB)],
                    kind="table",
                    text="To anything but training and evaluation.",
                ),
                Panel(
                    "Lost to restarts",
                    [Query(promql.lost_to_restarts(SPAN), EACH_JOB + " {{cause}}")],
                    kind="table",
                    text="Steps in vain and machines held between attempts, divided among causes by their number.",
                ),
                Panel("Restarts", [Query(f"{promql.restarts(SPAN)} > 0", EACH_JOB + " {{cause}}")], kind="table"),
            ],
        ),
    ],
)
