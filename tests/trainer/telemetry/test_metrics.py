import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tpujob_trainer.telemetry.metrics import GAUGES, NAMES, Metrics
from tpujob_trainer.telemetry.report import Report


def samples(metrics):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def test_facts_of_the_report_are_gauges():
    report = Report()
    report.update(step=7, loss=2.5, committed_step=5, committed_time=1700000000.0, data_wait_seconds=1.5)
    report.enter("training")
    found = samples(Metrics(report))
    assert found["tpujob_step",] == 7
    assert found["tpujob_loss",] == 2.5
    assert found["tpujob_checkpoint_committed_step",] == 5
    assert found["tpujob_checkpoint_committed_timestamp_seconds",] == 1700000000.0
    assert found["tpujob_data_wait_seconds_total",] == 1.5
    assert found["tpujob_phase", "training"] == 1


def test_unknown_fact_is_absent():
    found = samples(Metrics(Report()))
    assert ("tpujob_loss",) not in found
    assert ("tpujob_heartbeat_timestamp_seconds",) not in found
    assert ("tpujob_checkpoint_committed_step",) not in found


def test_counters_count():
    metrics = Metrics(Report())
    metrics.tokens.inc(4096)
    metrics.step_seconds.observe(0.5)
    metrics.checkpoint_failures.inc()
    metrics.heartbeat()
    found = samples(metrics)
    assert found["tpujob_tokens_total",] == 4096
    assert found["tpujob_step_seconds_count",] == 1
    assert found["tpujob_checkpoint_failures_total",] == 1
    assert found["tpujob_heartbeat_timestamp_seconds",] > 1.7e9


def test_seconds_of_each_phase_are_counters():
    report = Report()
    report.enter("compiling")
    report.enter("training")
    found = samples(Metrics(report))
    assert {"starting", "compiling", "training"} <= {key[1] for key in found if key[0] == "tpujob_phase_seconds_total"}


def test_two_of_a_process_do_not_collide():
    Metrics(Report())
    Metrics(Report())


@pytest.mark.parametrize("name", sorted(NAMES))
def test_name_follows_the_rules(name):
    assert re.fullmatch(r"tpujob_[a-z_]+", name)
    assert not re.search(r"_(ms|millis|minutes|kb|mb)(_|$)", name)


class Device:
    """As JAX shows one that tells its memory."""

    id = 3

    def memory_stats(self):
        return {"bytes_in_use": 5, "peak_bytes_in_use": 7, "bytes_limit": 16, "num_allocs": 1}


def test_memory_of_devices_is_told_where_it_is_known():
    metrics = Metrics(Report())
    assert not [key for key in samples(metrics) if key[0] == "tpujob_device_memory_bytes"]
    metrics.devices = [Device()]
    found = samples(metrics)
    assert [found["tpujob_device_memory_bytes", "3", kind] for kind in ("in_use", "peak", "limit")] == [5, 7, 16]


def test_account_of_the_run_is_by_category():
    report = Report()
    report.update(goodput={"step": 90.0, "lost_steps": 10.0}, goodput_fraction=0.9)
    found = samples(Metrics(report))
    assert found["tpujob_goodput_seconds", "lost_steps"] == 10.0
    assert found["tpujob_goodput_ratio",] == 0.9


def test_extraction_is_told_in_units():
    report = Report()
    report.update(units=100, units_done=40, units_claimed=3, units_here=20, rows_per_second=12.5)
    report.update(unit_failures={"scratch full": 2})
    found = samples(Metrics(report))
    units = [found[f"tpujob_units{which}",] for which in ("", "_done", "_claimed", "_here")]
    assert (units, found["tpujob_rows_per_second",]) == ([100, 40, 3, 20], 12.5)
    assert found["tpujob_unit_failures", "scratch_full"] == 2


def test_list_of_names_is_complete():
    report = Report()
    report.update(**dict.fromkeys(GAUGES, 1.0), goodput={"step": 1.0}, unit_failures={"storage": 1})
    metrics = Metrics(report)
    metrics.devices = [Device()]
    metrics.tracker_failures.labels(tracker="wandb").inc()
    metrics.heartbeat()
    names = {name for name, *_ in samples(metrics) if not name.endswith("_created")}
    assert names == NAMES
