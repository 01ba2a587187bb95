"""Writes docs/reference/metrics.md: every metric with type, unit, labels, number of series and meaning.

python -m tools.monitoring.reference
"""

from collections.abc import Sequence
from pathlib import Path

from tools.monitoring import families
from tools.monitoring.families import Family

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

HEAD = """\
# Metrics

<!-- Generated from the code by `make generate`; change the help texts there. -->

Every training process serves `/metrics` on port 9432 (`report`), every operator on port 9090 (`metrics`). The chart's
`metrics.podMonitor` has Prometheus scrape both. Counters start again at zero with each attempt of a job, as `rate()`
and `increase()` expect.

The column *series* says how many a process exports at most: D is the number of its devices, J the number of
TpuTrainingJobs in the cluster. A value that is not known is absent, never zero.

For people there is a page at `/` of the same port of each training process; `tpujob run` prints its address. It shows
numbers and the loss curve of that process, loads nothing from elsewhere and runs no scripts:

![the page of process 0 of a run of two processes](../images/page.png)

The chart's dashboards (`metrics.dashboards`) show these metrics in Grafana; see [dashboards](../dashboards.md).
"""
TRAINER = """
## Training processes

Scraped through the chart's PodMonitor, each series also has `tpujob` (the job's name), `slice`, `host`, `namespace` and
`pod`. Process 0 is slice 0, host 0.
"""
OPERATOR = """
## Operator

`tpujob_operator_jobs` and `tpujob_operator_job_…` come from the operator that leads; the others export them without
series. Beside these there are `process_…` and `python_…` of the Prometheus client library.
"""
LABELS = """
## Labels

| label | of | values |
|---|---|---|
"""
SERIES_WORDS = {"device": "D", "job_name": "J"}
FREE = {"outcome": "20", "tracker": "2", "resource": "10", "method": "5", "status": "10", "result": "5", "cause": "10"}
"""The most values that a label without a fixed list has in practice."""


def page() -> str:
    """The text of the page."""
    trainer, operator = families.trainer(), families.operator()
    labels = sorted({row for family in (*trainer, *operator) for row in _label_rows(family)})
    parts = (HEAD, TRAINER, _table(trainer), OPERATOR, _table(operator), LABELS, "\n".join(labels), "\n")
    return "".join(parts)


def _table(rows: Sequence[Family]) -> str:
    head = "\n| metric | type | unit | labels | series | meaning |\n|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| `{row.name}` | {row.kind} | {row.unit} | {_label_cell(row)} | {series(row)} | {row.meaning} |\n"
        for row in rows
    )


def _label_cell(family: Family) -> str:
    return ", ".join(f"`{label}`" for label in family.labels)


def series(family: Family) -> str:
    """The most series that one process exports of a metric, such as `12`, `3 D`."""
    number, words = family.buckets + 2 if family.kind == "histogram" else 1, []
    for label in family.labels:
        values = families.label_values(family, label)
        if label == "phase" and "job_name" in family.labels:
            continue  # a job is in one phase
        if isinstance(values, tuple):
            number *= len(values)
        elif label in FREE:
            number *= int(FREE[label])
        elif label in SERIES_WORDS:
            words.append(SERIES_WORDS[label])
    return " ".join([str(number)] * (number > 1 or not words) + words)


def _label_rows(family: Family) -> list[str]:
    program = "operator" if family.name.startswith("tpujob_operator_") else "training process"
    rows = []
    for label in family.labels:
        values = families.label_values(family, label)
        text = values if isinstance(values, str) else ", ".join(f"`{value}`" for value in values)
        owner = f"`{family.name}`" if label == "cause" else program
        rows.append(f"| `{label}` | {owner} | {text} |")
    return rows


if __name__ == "__main__":
    PAGE.write_text(page())
