import pytest

from tpujob_operator.controller.job_gauges import JobFacts, JobGauges

RUNNING = {"phase": "Running", "hosts": 8, "hostsReady": 7, "restarts": 6, "disruptions": 2, "unexplainedRestarts": 1}


def samples(jobs: JobGauges) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("tpujob_operator_"), *sample.labels.values()): sample.value
        for family in jobs.collect()
        for sample in family.samples
    }


def test_job_tells_phase_hosts_chips_and_restarts():
    jobs = JobGauges()
    jobs.note(("ns", "a"), JobFacts.of({"accelerator": "v5e-16"}, RUNNING))
    found = samples(jobs)
    assert found["job_phase", "ns", "a", "Running"] == 1
    assert found["job_hosts", "ns", "a"] == 8
    assert found["job_hosts_ready", "ns", "a"] == 7
    assert found["job_chips", "ns", "a", "v5e-16"] == 32
    assert {key[3]: value for key, value in found.items() if key[0] == "job_restarts"} == {
        "Crash": 3,
        "Disruption": 2,
        "Unexplained": 1,
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
    jobs.note(("ns", "a"), JobFacts.of({"accelerator": accelerator}, RUNNING | {"phase": phase}))
    assert samples(jobs)["job_chips", "ns", "a", accelerator] == chips


def test_new_phase_replaces_the_old_one():
    jobs = JobGauges()
    for phase in ("Starting", "Running"):
        jobs.note(("ns", "a"), JobFacts.of({}, {"phase": phase}))
    assert [key for key in samples(jobs) if key[0] == "job_phase"] == [("job_phase", "ns", "a", "Running")]


def test_gone_job_is_not_told_of():
    jobs = JobGauges()
    for name in ("a", "b", "c"):
        jobs.note(("ns", name), JobFacts.of({}, {"phase": "Running"}))
    jobs.forget(("ns", "a"))
    listed = {("ns", "b"): JobFacts.of({}, {"phase": "Starting"}), ("ns", "d"): JobFacts.of({}, {"phase": "Failed"})}
    jobs.keep_only({**listed, ("ns", "new"): JobFacts.of({}, {})})
    # What a reconcile said of b is newer than the list.
    assert {key[2:] for key in samples(jobs) if key[0] == "job_phase"} == {("b", "Running"), ("d", "Failed")}


def test_operator_that_does_not_lead_tells_nothing():
    jobs = JobGauges(leads=lambda: False)
    jobs.note(("ns", "a"), JobFacts.of({}, RUNNING))
    assert samples(jobs) == {}
