"""docs/reference/metrics.md names what is exported, all of it and nothing else."""

import re

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tools.monitoring import families, reference
from tpujob_operator.base import metrics as operator_metrics
from tpujob_operator.controller.job_gauges import JobGauges
from tpujob_trainer.telemetry.metrics import NAMES, Metrics
from tpujob_trainer.telemetry.report import Report

ROWS = re.findall(r"^\| `(tpujob_\w+)` \|", reference.PAGE.read_text(), re.MULTILINE)


def exported(exposition: str) -> set[str]:
    """Names of the families in an exposition, as a query writes them."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(exposition)
        if not (family.type == "gauge" and family.name.endswith("_created"))
    }


def test_page_is_what_the_code_says():
    assert reference.PAGE.read_text() == reference.page(), "make generate"


def test_page_has_each_metric_once():
    assert len(ROWS) == len(set(ROWS))


def test_page_and_trainer_name_the_same_metrics():
    of_page = {name for name in ROWS if not name.startswith(operator_metrics.PREFIX)}
    of_trainer = exported(Metrics(Report()).exposition().decode())
    assert of_page - of_trainer == set()
    assert of_trainer - of_page == set()
    assert {series for family in families.trainer() for series in family.series} == NAMES


def test_page_and_operator_name_the_same_metrics():
    of_page = {name for name in ROWS if name.startswith(operator_metrics.PREFIX)}
    # The process's own registry, into which each metric is put where it is defined; main adds the jobs' gauges.
    registry = CollectorRegistry()
    registry.register(JobGauges())
    of_operator = exported(generate_latest().decode()) | exported(generate_latest(registry).decode())
    # Libraries of the trainer that another test has imported put theirs into the same registry.
    of_operator = {name for name in of_operator if name.startswith("tpujob_")}
    assert of_page - of_operator == set()
    assert of_operator - of_page == set()


def test_every_metric_says_what_it_means():
    for family in (*families.trainer(), *families.operator()):
        assert family.meaning.endswith("."), family.name
        assert len(family.meaning.split()) >= 2, family.name
