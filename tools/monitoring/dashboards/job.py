"""One job: its loss, its speed, and what it waits for."""

from tools.monitoring.grafana import RATE, Dashboard, Panel, Query, Row, Variable

JOB = 'namespace="$namespace",tpujob="$tpujob"'
OF_JOB = 'job_namespace="$namespace",job_name="$tpujob"'
HOST = "slice {{slice}} host {{host}}"
BY_HOST = "max by (slice, host)"
"""Not by pod: after a restart in a new pod, the line continues."""


def _by_host(metric: str) -> Query:
    return Query(f"{BY_HOST} ({metric}{{{JOB}}})", HOST)


def _rate_of_job(metric: str, by: str, legend: str) -> Query:
    return Query(f"sum by ({by}) (rate({metric}{{{JOB}}}{RATE}))", legend)


def _quantile(part: float, histogram: str, legend: str) -> Query:
    return Query(f"histogram_quantile({part}, sum by (le) (rate({histogram}_bucket{{{JOB}}}{RATE})))", legend)


def _max(metric: str, legend: str = "") -> Query:
    return Query(f"max(tpujob_{metric}{{{JOB}}})", legend or metric)


TRAINING = Row(
    "Training",
    [
        Panel("Step", [_max("step"), _max("steps", "of")], kind="stat", width=4),
        Panel(
            "Phase",
            [Query(f"max by (phase) (tpujob_operator_job_phase{{{OF_JOB}}})", "{{phase}}")],
            kind="stat",
            width=4,
        ),
        Panel(
            "Loss", [_max("loss", "training"), _max("evaluation_loss", "evaluation")], text="Nats per token.", width=8
        ),
        Panel("Gradient norm", [_max("gradient_norm")], text="Before clipping."),
        Panel("Tokens per second", [_max("tokens_per_second", "tokens/s")], text="Of the whole job."),
        Panel(
            "Model FLOPs utilisation",
            [_max("mfu_ratio", "MFU"), _max("mfu_causal_ratio", "MFU, causal attention")],
            unit="percentunit",
        ),
        Panel(
            "Tokens and evaluations",
            [
                Query(f"max(tpujob_tokens_total{{{JOB}}})", "tokens of this attempt"),
                Query(f"max(tpujob_evaluation_step{{{JOB}}})", "step of the last evaluation"),
            ],
        ),
    ],
)
STEPS = Row(
    "Step time",
    [
        Panel(
            "Step time",
            [Query(f"sum by (le) (increase(tpujob_step_seconds_bucket{{{JOB}}}{RATE}))", "{{le}}")],
            unit="s",
            kind="heatmap",
            width=12,
        ),
        Panel(
            "Step time, median and 99th percentile",
            [_quantile(0.5, "tpujob_step_seconds", "median"), _quantile(0.99, "tpujob_step_seconds", "99 %")],
            unit="s",
            width=12,
        ),
    ],
)
DATA = Row(
    "Data",
    [
        Panel(
            "Waiting for data, by host",
            [_rate_of_job("tpujob_data_wait_seconds_total", "slice, host", HOST)],
            unit="percentunit",
            text="Part of the time for which the loop waits.",
        ),
        Panel("Waiting for data, last minute", [_by_host("tpujob_data_wait_fraction")], unit="percentunit"),
        Panel("Bytes read, by host", [_rate_of_job("tpujob_data_read_bytes_total", "slice, host", HOST)], unit="Bps"),
        Panel(
            "Requests and repetitions",
            [
                Query(f"sum(rate(tpujob_data_requests_total{{{JOB}}}{RATE}))", "requests"),
                _rate_of_job("tpujob_data_retries_total", "cause", "{{cause}}"),
            ],
            unit="reqps",
        ),
        Panel("Rows", [Query(f"sum by (outcome) (tpujob_data_rows{{{JOB}}})", "{{outcome}}")]),
    ],
)
CHECKPOINTS = Row(
    "Checkpoints",
    [
        Panel(
            "Age of the last checkpoint",
            [
                Query(f"time() - max(tpujob_checkpoint_committed_timestamp_seconds{{{JOB}}})", "age"),
                _max("checkpoint_interval_seconds", "interval"),
                Query(f"time() - min(tpujob_local_copy_timestamp_seconds{{{JOB}}} > 0)", "local copy, oldest host"),
            ],
            unit="s",
        ),
        Panel(
            "Time of a save",
            [
                _quantile(0.5, "tpujob_checkpoint_commit_seconds", "to its commit, median"),
                _quantile(0.5, "tpujob_checkpoint_blocking_seconds", "keeping the loop waiting, median"),
            ],
            unit="s",
        ),
        Panel(
            "What went wrong",
            [
                _max("checkpoint_failures_total", "failed"),
                _max("local_copy_failures_total", "local copy failed"),
                _max("checkpoints_passed_over_total", "passed over"),
                _max("checkpoints_unusable_total", "damaged"),
                Query(f"time() - min(tpujob_checkpoint_failing_since_timestamp_seconds{{{JOB}}})", "failing for, s"),
            ],
        ),
        Panel(
            "Steps",
            [
                _max("checkpoint_committed_step", "committed"),
                _max("step", "trained"),
                _max("restored_from_step", "restored from"),
                _max("local_copies_total", "local copies, number"),
            ],
        ),
    ],
)
MACHINES = Row(
    "Hosts and devices",
    [
        Panel(
            "Device memory",
            [
                Query(f"max by (slice, host, kind) (tpujob_device_memory_bytes{{{JOB}}})", f"{HOST} {{{{kind}}}}"),
            ],
            unit="bytes",
            text="Absent on CPUs, which do not report it.",
        ),
        Panel("Host memory", [_by_host("tpujob_host_memory_bytes")], unit="bytes"),
        Panel(
            "Steps behind the first host",
            [
                Query(f"scalar(max(tpujob_step{{{JOB}}})) - {BY_HOST} (tpujob_step{{{JOB}}})", HOST),
            ],
        ),
        Panel(
            "Since the last turn of the loop",
            [
                Query(f"time() - {BY_HOST} (tpujob_heartbeat_timestamp_seconds{{{JOB}}})", HOST),
            ],
            unit="s",
        ),
        Panel(
            "Hosts",
            [
                Query(f"max(tpujob_operator_job_hosts{{{OF_JOB}}})", "needed"),
                Query(f"max(tpujob_operator_job_hosts_ready{{{OF_JOB}}})", "ready"),
            ],
        ),
        Panel("Phase of each host", [Query(f"sum by (phase) (tpujob_phase{{{JOB}}})", "{{phase}}")], stacked=True),
    ],
)
TIME = Row(
    "Where the time goes",
    [
        Panel(
            "Goodput by cause",
            [Query(f"max by (category) (tpujob_goodput_seconds{{{JOB}}})", "{{category}}")],
            unit="s",
            text="Seconds since the run first started, over all attempts.",
            stacked=True,
        ),
        Panel("Goodput", [_max("goodput_ratio", "steps that count")], unit="percentunit"),
        Panel(
            "Phases of this attempt",
            [Query(f"max by (phase) (tpujob_phase_seconds_total{{{JOB}}})", "{{phase}}")],
            unit="s",
            stacked=True,
        ),
        Panel("Restarts by cause", [Query(f"max by (cause) (tpujob_operator_job_restarts{{{OF_JOB}}})", "{{cause}}")]),
        Panel(
            "Compiling",
            [
                _max("compile_seconds_total", "seconds"),
                _max("compile_cache_hits_total", "cache hits"),
                _max("compile_cache_misses_total", "cache misses"),
            ],
        ),
        Panel(
            "Numbers that are not finite, trackers",
            [
                _max("nonfinite_steps_total", "steps that are not finite"),
                _max("rollbacks_total", "rollbacks"),
                Query(f"sum by (tracker) (tpujob_tracker_failures_total{{{JOB}}})", "{{tracker}} events lost"),
            ],
        ),
    ],
)
DASHBOARD = Dashboard(
    "tpujob-job",
    "tpujob / job",
    "One TpuTrainingJob: how it learns, how fast, and what it waits for.",
    [TRAINING, STEPS, DATA, CHECKPOINTS, MACHINES, TIME],
    [
        Variable("namespace", "label_values(tpujob_step, namespace)", "Namespace"),
        Variable("tpujob", 'label_values(tpujob_step{namespace="$namespace"}, tpujob)', "Job"),
    ],
)
