"""Every pod is told who it is, and finds the first one by name, whatever image it runs."""

import pytest

from tests.e2e.jobs import Jobs
from tpujob_contract import ports

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1200)]

# Looks for the coordinator until it has an address, as jax.distributed.initialize does.
TELL = """
import json, os, socket, time
deadline = time.monotonic() + 250
while True:
    try:
        address = socket.gethostbyname(os.environ["TPUJOB_COORDINATOR"].rpartition(":")[0])
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.1)
print(json.dumps({"address": address, **os.environ}))
"""


def test_two_slices_of_two_hosts_are_told_apart(jobs: Jobs) -> None:
    jobs.run("wiring", TELL, slices=2)

    jobs.wait_phase("wiring", "Succeeded")

    pods = jobs.pods("wiring")
    told = {pod["metadata"]["name"].rpartition("-")[0]: jobs.told(pod) for pod in pods}
    (first,) = (pod["status"]["podIP"] for pod in pods if pod["metadata"]["name"].startswith("wiring-w-0-0-"))
    places = {name: (told[name]["TPUJOB_SLICE"], told[name]["TPUJOB_HOST"]) for name in told}
    assert places == {
        "wiring-w-0-0": ("0", "0"),
        "wiring-w-0-1": ("0", "1"),
        "wiring-w-1-0": ("1", "0"),
        "wiring-w-1-1": ("1", "1"),
    }
    assert {name: told[name]["MEGASCALE_SLICE_ID"] for name in told} == {name: places[name][0] for name in places}
    assert [told[name]["JAX_PROCESS_ID"] for name in sorted(told)] == ["0", "1", "2", "3"]
    for environment in told.values():
        assert environment["JAX_NUM_PROCESSES"] == "4"
        assert environment["JAX_COORDINATOR_ADDRESS"] == "wiring-w-0-0.wiring-tpujob:8476"
        assert environment["address"] == first
        assert environment["TPUJOB_COORDINATOR"] == "wiring-w-0-0.wiring-tpujob:8476"
        assert environment["MEGASCALE_NUM_SLICES"] == "2"
        assert environment["MEGASCALE_COORDINATOR_ADDRESS"] == "wiring-w-0-0.wiring-tpujob"
        assert environment["MEGASCALE_PORT"] == str(ports.MEGASCALE)


def test_one_slice_has_no_megascale_variables(jobs: Jobs) -> None:
    jobs.run("wiring", TELL, accelerator="cpu:1x1")

    jobs.wait_phase("wiring", "Succeeded")

    told = jobs.told(jobs.pods("wiring")[0])
    assert [name for name in told if name.startswith("MEGASCALE_")] == []
    assert (told["JAX_PROCESS_ID"], told["JAX_NUM_PROCESSES"]) == ("0", "1")
