import pytest

from tpujob_operator.controller.job_gauges import JobFacts, JobGauges
from tpujob_resource.models.stored import read_spec, read_status

RUNNING = {
    "phase": "Running",
    "hosts": 8,
    "hostsReady": 7,
    "restarts": {"total": 6, "crashes": 3, "disruptions": 2, "unexplained": 1},
}


def facts(spec: dict, status: dict) -> JobFacts:
    return JobFacts.of(read_spec(spec), read_status(status))


def samples(jobs: JobGauges) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("tpujob_operator_"), *sample.labels.values()): sample.value
        for family in jobs.collect()
        for sample in family.samples
    }


def test_job_tells_phase_hosts_chips_and_restarts():
    jobs = JobGauges()
    jobs.note(("ns", "a"), facts({"accelerator": "v5e-16"}, RUNNING))
    found = samples(jobs)
    assert found["job_phase", "ns", "a", "Running"] == 1
    assert found["job_hosts", "ns", "a"] == 8
    assert found["job_hosts_ready", "ns", "a"] == 7
    assert found["job_chips", "ns", "a", "v5e-16"] == 32
    assert {key[3]: value for key, value in found.items() if key[0] == "job_restarts"} == {
        "Crash": 3,
        "Disruption": 2,
        "Unexplained": 1,
        "Capacity": 0,
    }
    assert found["jobs", "Running"] == 1
    assert found["jobs", "Failed"] == 0


@pytest.mark.parametrize(
    ("accelerator", "phase", "chips"),
    [
        ("v4-16", "Running", 8 * 4),
        ("v4-16", "Queued", 0),
        ("v4-16", "Suspended", 0),
        ("v4-16", "Stopping", 8 * 4),
        ("cpu:2x4", "Running", 0),
        ("no-such-thing", "Invalid", 0),
    ],
)
def test_chips_are_counted_while_machines_are_held(accelerator, phase, chips):
    jobs = JobGauges()
    jobs.note(("ns", "a"), facts({"accelerator": accelerator}, RUNNING | {"phase": phase}))
    assert samples(jobs)["job_chips", "ns", "a", accelerator] == chips


@pytest.mark.parametrize(
    ("accelerator", "phase", "chips"),
    [
        ("v4-16", "Running", 32),
        ("v4-16", "Restarting", 32),
        ("v4-16", "Queued", 32),
        ("v4-16", "WaitingForCapacity", 32),
        ("v4-16", "Suspended", None),
        ("v4-16", "Succeeded", None),
        ("cpu:2x4", "Running", None),
    ],
)
def test_chips_held_or_waited_for_have_a_phase_and_an_owner(accelerator, phase, chips):
    jobs = JobGauges()
    spec = read_spec({"accelerator": accelerator, "queue": "research", "capacity": {"spot": True}})
    jobs.note(("ns", "a"), JobFacts.of(spec, read_status(RUNNING | {"phase": phase}), owner="ana"))
    found = {key[1:]: value for key, value in samples(jobs).items() if key[0] == "job_phase_chips"}
    expected = {} if chips is None else {("ns", "a", accelerator, "research", "ana", "true", phase): chips}
    assert found == expected


def test_job_tells_since_when_it_is_in_its_phase():
    jobs = JobGauges()
    jobs.note(("ns", "a"), facts({}, RUNNING | {"phaseTime": "2030-01-01T12:00:00Z"}))
    jobs.note(("ns", "b"), facts({}, RUNNING))
    since = {key: value for key, value in samples(jobs).items() if key[0] == "job_phase_start_timestamp_seconds"}
    assert since == {("job_phase_start_timestamp_seconds", "ns", "a", "Running"): 1893499200.0}


def test_new_phase_replaces_the_old_one():
    jobs = JobGauges()
    for phase in ("Starting", "Running"):
        jobs.note(("ns", "a"), facts({}, {"phase": phase}))
    assert [key for key in samples(jobs) if key[0] == "job_phase"] == [("job_phase", "ns", "a", "Running")]


def test_gone_job_is_not_told_of():
    jobs = JobGauges()
    for name in ("a", "b", "c"):
        jobs.note(("ns", name), facts({}, {"phase": "Running"}))
    jobs.forget(("ns", "a"))
    listed = {("ns", "b"): facts({}, {"phase": "Starting"}), ("ns", "d"): facts({}, {"phase": "Failed"})}
    jobs.keep_only({**listed, ("ns", "new"): facts({}, {})})
    # What a reconcile said of b is newer than the list.
    assert {key[2:] for key in samples(jobs) if key[0] == "job_phase"} == {("b", "Running"), ("d", "Failed")}


def test_operator_that_does_not_lead_tells_nothing():
    jobs = JobGauges(leads=lambda: False)
    jobs.note(("ns", "a"), facts({}, RUNNING))
    assert samples(jobs) == {}
