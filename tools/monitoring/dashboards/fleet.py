"""All jobs side by side."""

from tools.monitoring.grafana import RATE, Dashboard, Panel, Query, Row

EACH = "{{namespace}}/{{tpujob}}"
EACH_BY_OPERATOR = "{{job_namespace}}/{{job_name}}"
DASHBOARD = Dashboard(
    "tpujob-fleet",
    "tpujob / fleet",
    "All jobs side by side.",
    [
        Row(
            "Jobs",
            [
                Panel(
                    "Phase",
                    [Query("max by (job_namespace, job_name, phase) (tpujob_operator_job_phase)")],
                    kind="table",
                    width=12,
                    labels_only=True,
                ),
                Panel(
                    "Chips held",
                    [
                        Query(
                            "max by (job_namespace, job_name, accelerator) (tpujob_operator_job_chips)",
                            EACH_BY_OPERATOR + " {{accelerator}}",
                        ),
                    ],
                    width=12,
                    stacked=True,
                ),
            ],
        ),
        Row(
            "Speed",
            [
                Panel(
                    "Progress",
                    [
                        Query(
                            "max by (namespace, tpujob) (tpujob_step) / max by (namespace, tpujob) (tpujob_steps)", EACH
                        ),
                    ],
                    unit="percentunit",
                ),
                Panel("Tokens per second", [Query("max by (namespace, tpujob) (tpujob_tokens_per_second)", EACH)]),
                Panel(
                    "Model FLOPs utilisation",
                    [Query("max by (namespace, tpujob) (tpujob_mfu_ratio)", EACH)],
                    unit="percentunit",
                ),
                Panel("Loss", [Query("max by (namespace, tpujob) (tpujob_loss)", EACH)]),
                Panel(
                    "Goodput", [Query("max by (namespace, tpujob) (tpujob_goodput_ratio)", EACH)], unit="percentunit"
                ),
                Panel(
                    "Waiting for data",
                    [
                        Query(f"avg by (namespace, tpujob) (rate(tpujob_data_wait_seconds_total{RATE}))", EACH),
                    ],
                    unit="percentunit",
                ),
            ],
        ),
        Row(
            "Health",
            [
                Panel(
                    "Time in the present phase",
                    [
                        Query(
                            "time() - max by (job_namespace, job_name, phase) "
                            "(tpujob_operator_job_phase_start_timestamp_seconds)",
                            EACH_BY_OPERATOR + " {{phase}}",
                        ),
                    ],
                    unit="s",
                ),
                Panel(
                    "Age of the last checkpoint",
                    [
                        Query(
                            "time() - max by (namespace, tpujob) (tpujob_checkpoint_committed_timestamp_seconds)", EACH
                        ),
                    ],
                    unit="s",
                ),
                Panel(
                    "Crashes",
                    [
                        Query(
                            'max by (job_namespace, job_name) (tpujob_operator_job_restarts{cause="Crash"})',
                            EACH_BY_OPERATOR,
                        ),
                    ],
                ),
                Panel(
                    "Other restarts",
                    [
                        Query(
                            'sum by (job_namespace, job_name) (tpujob_operator_job_restarts{cause!="Crash"})',
                            EACH_BY_OPERATOR,
                        ),
                    ],
                ),
            ],
        ),
    ],
)
