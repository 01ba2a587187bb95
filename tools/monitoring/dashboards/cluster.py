"""The queue, the capacity, and the operator."""

from tools.monitoring.grafana import RATE, Dashboard, Panel, Query, Row
from tpujob_resource.models.phases import Traits, phases_with

OPERATOR_POD = "{{pod}}"
JOB = "job_namespace, job_name"
WAITING = "|".join(phases_with(Traits.WAITING))
WAITS = f"rate(tpujob_operator_queue_seconds_bucket{RATE})"
RECONCILES = f"rate(tpujob_operator_reconcile_seconds_bucket{RATE})"
DASHBOARD = Dashboard(
    "tpujob-cluster",
    "tpujob / cluster",
    "The queue, the capacity, and the operator.",
    [
        Row(
            "Jobs and capacity",
            [
                Panel("Jobs by phase", [Query("max by (phase) (tpujob_operator_jobs)", "{{phase}}")], stacked=True),
                Panel(
                    "Chips in use",
                    [
                        Query(
                            f"sum by (accelerator) (max by ({JOB}, accelerator) (tpujob_operator_job_chips))",
                            "{{accelerator}}",
                        ),
                    ],
                    stacked=True,
                ),
                Panel(
                    "Jobs that wait",
                    [
                        Query(
                            f'max by (phase) (tpujob_operator_jobs{{phase=~"{WAITING}"}})',
                            "{{phase}}",
                        ),
                    ],
                    stacked=True,
                ),
                Panel(
                    "Restarts by cause",
                    [
                        Query(
                            "sum by (cause) (max by (job_namespace, job_name, cause) (tpujob_operator_job_restarts))",
                            "{{cause}}",
                        ),
                        Query(f"sum by (cause) (increase(tpujob_operator_restarts_total{RATE}))", "{{cause}}, new"),
                    ],
                ),
                Panel("JobSets created", [Query("sum(tpujob_operator_jobsets_created_total)", "created")]),
                Panel(
                    "Time in a phase, median",
                    [
                        Query(
                            "histogram_quantile(0.5, sum by (phase, le) (tpujob_operator_phase_seconds_bucket))",
                            "{{phase}}",
                        ),
                    ],
                    unit="s",
                    text="Of phases that jobs left since the operator started: Queued is the wait in a queue.",
                ),
            ],
        ),
        Row(
            "Operator",
            [
                Panel("Leader", [Query("tpujob_operator_leader", OPERATOR_POD)]),
                Panel(
                    "Reconciles by result",
                    [Query(f"sum by (result) (rate(tpujob_operator_reconciles_total{RATE}))", "{{result}}")],
                    unit="ops",
                ),
                Panel(
                    "Time of a reconcile",
                    [
                        Query(
                            f"histogram_quantile(0.5, sum by (le) ({RECONCILES}))",
                            "median",
                        ),
                        Query(
                            f"histogram_quantile(0.99, sum by (le) ({RECONCILES}))",
                            "99 %",
                        ),
                        Query(f"histogram_quantile(0.99, sum by (le) ({WAITS}))", "waiting for it, 99 %"),
                    ],
                    unit="s",
                ),
                Panel(
                    "Requests to the API server",
                    [
                        Query(
                            f"sum by (method, resource, status) (rate(tpujob_operator_api_requests_total{RATE}))",
                            "{{method}} {{resource}} {{status}}",
                        ),
                    ],
                    unit="reqps",
                ),
                Panel(
                    "Status writes and progress reports",
                    [
                        Query(f"sum(rate(tpujob_operator_status_writes_total{RATE}))", "status writes"),
                        Query(f"sum by (result) (rate(tpujob_operator_reports_total{RATE}))", "reports {{result}}"),
                    ],
                    unit="ops",
                ),
                Panel("Jobs due for a reconcile", [Query("tpujob_operator_queued_jobs", OPERATOR_POD)]),
                Panel(
                    "Watch events",
                    [Query(f"sum by (resource) (rate(tpujob_operator_watch_events_total{RATE}))", "{{resource}}")],
                    unit="ops",
                ),
                Panel(
                    "Age of the last list and the last events",
                    [
                        Query("time() - tpujob_operator_last_resync_timestamp_seconds", "list, {{pod}}"),
                        Query("time() - tpujob_operator_watch_last_event_timestamp_seconds", "{{resource}}, {{pod}}"),
                    ],
                    unit="s",
                ),
                Panel(
                    "Watches that are behind",
                    [
                        Query("tpujob_operator_watch_missed_objects", "objects not seen, {{pod}}"),
                        Query("tpujob_operator_watch_restarts_total", "restarts, {{pod}}"),
                        # No series before the first one.
                        Query("sum(tpujob_operator_unreadable_objects_total) or vector(0)", "objects left aside"),
                    ],
                ),
            ],
        ),
    ],
)
