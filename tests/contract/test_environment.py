"""All variables: a process of a job. None: one on its own. Some, or nonsense: an error that names them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.launched import JOB, WORKER
from tpujob_contract import (
    ContractError,
    DistributedProcess,
    IndependentWorker,
    LocalProcess,
    environment,
    ports,
    read_environment,
)


def test_process_of_a_job():
    process = read_environment(JOB)
    assert isinstance(process, DistributedProcess)
    assert (process.process_id, process.num_processes) == (7, 8)
    assert process == DistributedProcess(
        name="llama",
        namespace="team-a",
        incarnation=1,
        attempt=0,
        chips_per_host=4,
        startup_seconds=600,
        grace_seconds=30,
        checkpoint_dir=None,
        config=None,
        report_port=ports.REPORT,
        in_place=0,
        in_place_attempt=0,
        in_place_cause="",
        in_place_account="",
        in_place_port=0,
        launcher_port=ports.LAUNCHER,
        pod="",
        pods_before=None,
        silence_seconds=None,
        secret="",
        slice_index=1,
        host_index=3,
        hosts_per_slice=4,
        slices=2,
        coordinator="llama-w-0-0.llama:8476",
    )


def test_independent_worker():
    worker = read_environment(WORKER)
    assert isinstance(worker, IndependentWorker)
    assert (worker.worker, worker.workers) == (5, 32)


def test_worker_that_was_added_is_accepted():
    worker = read_environment(WORKER | {"TPUJOB_WORKER": "40"})
    assert isinstance(worker, IndependentWorker)
    assert (worker.worker, worker.workers) == (40, 32)


def test_optional_ones_are_read():
    process = read_environment(
        JOB | {"TPUJOB_CHECKPOINT_DIR": "gs://b/c", "TPUJOB_CONFIG": "{}", "TPUJOB_REPORT_PORT": "1234"}
    )
    assert (process.checkpoint_dir, process.config, process.report_port) == ("gs://b/c", "{}", 1234)


@pytest.mark.parametrize("extra", [{}, {"PATH": "/bin", "JAX_PROCESS_ID": "0"}, {"TPUJOB_REPORT_PORT": "1"}], ids=str)
def test_no_variables_means_a_process_on_its_own(extra):
    assert isinstance(read_environment(extra), LocalProcess)


def test_process_on_its_own_is_told_what_is_optional():
    process = read_environment({"TPUJOB_CHECKPOINT_DIR": "/c", "TPUJOB_CONFIG": "{}", "TPUJOB_REPORT_PORT": "1"})
    assert (process.checkpoint_dir, process.config, process.report_port) == ("/c", "{}", 1)
    assert process.owner == "local/trainer"


@pytest.mark.parametrize("missing", environment.DISTRIBUTED)
def test_each_missing_variable_is_named(missing):
    with pytest.raises(ContractError, match=rf"lacks {missing};"):
        read_environment({k: v for k, v in JOB.items() if k != missing})


@pytest.mark.parametrize("missing", environment.INDEPENDENT)
def test_each_missing_variable_of_a_worker_is_named(missing):
    with pytest.raises(ContractError, match=rf"lacks {missing};"):
        read_environment({k: v for k, v in WORKER.items() if k != missing})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (JOB | {"TPUJOB_SLICE": "2"}, "TPUJOB_SLICE='2' is not a whole number from 0 to 1"),
        (JOB | {"TPUJOB_HOST": "-1"}, "TPUJOB_HOST='-1' is not a whole number from 0 to 3"),
        (JOB | {"TPUJOB_HOST": "1.5"}, "TPUJOB_HOST='1.5' is not a whole number from 0 to 3"),
        (JOB | {"TPUJOB_HOST": "٣"}, "TPUJOB_HOST='٣' is not a whole number from 0 to 3"),
        (JOB | {"TPUJOB_SLICES": "0"}, "TPUJOB_SLICES='0' is not a whole number from 1 up"),
        (JOB | {"TPUJOB_ATTEMPT": ""}, "lacks TPUJOB_ATTEMPT"),
        (JOB | {"TPUJOB_COORDINATOR": "host"}, "TPUJOB_COORDINATOR='host' is not host:port"),
        (JOB | {"TPUJOB_COORDINATOR": "a b:1"}, "TPUJOB_COORDINATOR='a b:1' is not host:port"),
        (WORKER | {"TPUJOB_WORKER": "-1"}, "TPUJOB_WORKER='-1' is not a whole number from 0 up"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nonsense_is_refused_by_name(environ, message):
    with pytest.raises(ContractError) as error:
        read_environment(environ)
    assert message in str(error.value)


@given(
    st.dictionaries(st.sampled_from(sorted({*JOB, *WORKER})), st.sampled_from(["", "0", "1", "7", "-1", "a:1", "x"]))
)
def test_any_environment_is_a_process_or_an_error(environ):
    try:
        process = read_environment(environ)
    except ContractError:
        assert environ
    else:
        assert isinstance(process, LocalProcess) == (not environ)
        if isinstance(process, DistributedProcess):
            assert 0 <= process.process_id < process.num_processes


@pytest.mark.parametrize(
    "name", [*environment.DISTRIBUTED, *environment.INDEPENDENT, *environment.OPTIONAL, environment.MEGASCALE_SLICE_ID]
)
def test_wiring_is_reserved(name):
    assert name.startswith(environment.RESERVED_PREFIXES)


LEAST = {
    "TPUJOB_INCARNATION": 1,
    "TPUJOB_ATTEMPT": 0,
    "TPUJOB_CHIPS_PER_HOST": 1,
    "TPUJOB_STARTUP_SECONDS": 1,
    "TPUJOB_GRACE_SECONDS": 1,
    "TPUJOB_SLICE": 0,
    "TPUJOB_HOST": 0,
}


@pytest.mark.parametrize("name", LEAST)
def test_least_value_is_allowed_and_none_below(name):
    read_environment(JOB | {name: str(LEAST[name])})
    with pytest.raises(ContractError, match=f"{name}='{LEAST[name] - 1}' is not a whole number from {LEAST[name]}"):
        read_environment(JOB | {name: str(LEAST[name] - 1)})


@pytest.mark.parametrize(
    ("environ", "least"),
    [(WORKER | {"TPUJOB_WORKERS": "1", "TPUJOB_WORKER": "0"}, "TPUJOB_WORKERS"), (JOB, "TPUJOB_SLICES")],
    ids=["workers", "slices"],
)
def test_of_nothing_there_is_at_least_one(environ, least):
    read_environment(environ)
    with pytest.raises(ContractError, match=f"{least}='0' is not a whole number from 1 up"):
        read_environment(environ | {least: "0"})


def test_worker_counts_from_0():
    with pytest.raises(ContractError, match="TPUJOB_WORKER='-1' is not a whole number from 0 up"):
        read_environment(WORKER | {"TPUJOB_WORKER": "-1"})


@pytest.mark.parametrize(("name", "count"), [("TPUJOB_SLICE", 2), ("TPUJOB_HOST", 4)])
def test_index_is_below_the_count(name, count):
    read_environment(JOB | {name: str(count - 1)})
    with pytest.raises(ContractError, match=f"{name}='{count}' is not a whole number from 0 to {count - 1}"):
        read_environment(JOB | {name: str(count)})


def test_port_0_means_any_free_one():
    assert read_environment({"TPUJOB_REPORT_PORT": "0"}).report_port == 0


def test_empty_optional_ones_are_absent():
    process = read_environment({"TPUJOB_CHECKPOINT_DIR": "", "TPUJOB_CONFIG": "", "TPUJOB_REPORT_PORT": ""})
    assert (process.checkpoint_dir, process.config, process.report_port) == (None, None, ports.REPORT)


def test_process_on_its_own_has_the_grace_of_kubernetes():
    process = read_environment({})
    assert (process.grace_seconds, process.incarnation, process.attempt) == (30, 0, 0)
