"""One extraction: the progress of its workers, and what delays them."""

from tools.monitoring.grafana import RATE, Dashboard, Panel, Query, Row, Variable

JOB = 'namespace="$namespace",tpujob="$tpujob"'
WORKER = "worker {{host}}"


def _max(metric: str, legend: str) -> Query:
    return Query(f"max(tpujob_{metric}{{{JOB}}})", legend)


def _by_worker(metric: str) -> Query:
    return Query(f"max by (host) (tpujob_{metric}{{{JOB}}})", WORKER)


PROGRESS = Row(
    "Progress",
    [
        Panel(
            "Part done",
            [Query(f"max(tpujob_units_done{{{JOB}}}) / max(tpujob_units{{{JOB}}})", "of all units")],
            unit="percentunit",
            kind="stat",
            width=4,
        ),
        Panel(
            "Workers",
            [Query(f'count(tpujob_phase{{{JOB},phase="extracting"}} == 1)', "at work")],
            kind="stat",
            width=4,
        ),
        Panel("Units", [_max("units_done", "done"), _max("units", "in all"), _max("units_claimed", "held by workers")]),
        Panel("Rows per second", [_max("rows_per_second", "rows/s")], text="Of all workers, over the last minutes."),
    ],
)
WORKERS = Row(
    "Workers",
    [
        Panel("Units done, by worker", [_by_worker("units_here")]),
        Panel(
            "Units that were not finished",
            [Query(f"max by (cause) (tpujob_unit_failures{{{JOB}}})", "{{cause}}")],
            text="Any worker tries them again.",
        ),
        Panel("Host memory", [_by_worker("host_memory_bytes")], unit="bytes"),
        Panel(
            "Bytes read",
            [Query(f"sum by (host) (rate(tpujob_data_read_bytes_total{{{JOB}}}{RATE}))", WORKER)],
            unit="Bps",
        ),
        Panel(
            "Phases of the workers",
            [Query(f"sum by (phase) (tpujob_phase{{{JOB}}})", "{{phase}}")],
            stacked=True,
        ),
    ],
)
DASHBOARD = Dashboard(
    "tpujob-extraction",
    "tpujob / extraction",
    "One extraction by independent workers: how far it is, and what keeps it.",
    [PROGRESS, WORKERS],
    [
        Variable("namespace", "label_values(tpujob_units, namespace)", "Namespace"),
        Variable("tpujob", 'label_values(tpujob_units{namespace="$namespace"}, tpujob)', "Job"),
    ],
)
