"""Jobs do not notice what becomes of the operator: its leader lost, its chart upgraded and rolled back."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e import operator_pod
from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs
from tests.e2e.test_training import delete, kill
from tests.e2e.waiting import wait_for
from tools.localcluster import background, one_machine, product, product_images
from tools.localcluster.api import Object

pytestmark = [pytest.mark.e2e, pytest.mark.afterwards, pytest.mark.timeout(1800)]

JOB = "job"
LATER = "later"
"""A tag of the images of this checkout."""
OPERATOR_IS_LATER = f"--set-string=image.tag={LATER}"
SECONDS_BETWEEN_SAVES = 3
BOOKS = ("incarnation", "restarts.total", "restarts.charged", "restarts.disruptions", "restarts.unexplained")


@pytest.fixture
def training(jobs: Jobs) -> Jobs:
    """A job that has made steps."""
    if not jobs.surroundings.is_own:
        pytest.skip("changes the release of `make cluster`, and nobody else's")
    jobs.train(JOB, steps=FOR_EVER)
    jobs.wait(JOB, "steps", lambda status: (status.get("step") or 0) > 0)
    return jobs


@pytest.fixture
def installed(jobs: Jobs) -> Iterator[tuple[str, ...]]:
    """The settings of the release, which afterwards is this checkout's chart with them again."""
    client, namespace = jobs.cluster, f"--namespace={product.NAMESPACE}"
    values = json.loads(client.run_tool("helm", "get", "values", product.RELEASE, namespace, "--output=json"))
    settings = (
        f"--set-string=podAnnotations.image={values['podAnnotations']['image']}",
        f"--set=image.pullPolicy={values['image']['pullPolicy']}",
    )
    yield settings
    product.install(client, settings)


@pytest.mark.usefixtures("installed")
def test_lost_leader_is_replaced_and_jobs_do_not_notice(training: Jobs) -> None:
    operator_pod.scale(training, 2)
    before, leader = state(training), holder(training)
    began = training.status(JOB)["step"]

    namespace = training.surroundings.operator_namespace
    training.cluster.kubectl("delete", "pod", leader, f"--namespace={namespace}", "--grace-period=0", "--force")

    wait_for("another leader", lambda: holder(training) not in ("", leader), timeout_seconds=PATIENCE_SECONDS)
    training.wait(JOB, "progress written by it", lambda status: status["step"] > began)
    assert state(training) == before


def test_upgrade_and_rollback_restart_no_pod(training: Jobs, installed: tuple[str, ...]) -> None:
    client, namespace = training.cluster, f"--namespace={product.NAMESPACE}"
    tag_as_later("operator")
    before = state(training)

    product.install(client, (*installed, OPERATOR_IS_LATER))
    assert_goes_on(training, before)
    output = client.run_tool("helm", "test", product.RELEASE, namespace, "--timeout=120s")
    assert "Phase:          Succeeded" in output

    client.run_tool("helm", "rollback", product.RELEASE, namespace, "--wait", f"--timeout={product.INSTALL_SECONDS}s")
    assert_goes_on(training, before)


@pytest.mark.usefixtures("installed")
def test_job_in_place_goes_on_while_operator_and_trainer_get_new_images(jobs: Jobs) -> None:
    if not jobs.surroundings.is_own:
        pytest.skip("changes the release of `make cluster`, and nobody else's")
    for key in ("operator", "trainer"):
        tag_as_later(key)
    jobs.train(JOB, steps=FOR_EVER, checkpoint={"everySeconds": SECONDS_BETWEEN_SAVES}, inPlaceRestarts=3)
    began = jobs.wait_until_it_trains(JOB)
    jobs.wait(JOB, "a checkpoint", lambda status: (status.get("lastCheckpointStep") or 0) > began)
    before = jobs.pods(JOB)

    product.install(jobs.cluster, (OPERATOR_IS_LATER,))
    kill(jobs, before[1]["metadata"]["name"])
    jobs.wait(JOB, "an attempt in place", lambda status: status.get("restarts.inPlace") == 1)
    began = jobs.wait_until_it_trains(JOB)
    product.install(jobs.cluster, (OPERATOR_IS_LATER, f"--set-string=trainerImage.tag={LATER}"))
    delete(jobs, before[1]["metadata"]["name"])
    status = jobs.wait(JOB, "another one with a new pod", lambda status: status.get("restarts.inPlace") == 2)

    restored = jobs.wait_until_it_trains(JOB)
    jobs.wait(JOB, "a later step", lambda status: (status.get("step") or 0) > restored)
    assert restored >= began
    after = jobs.pods(JOB)
    assert [images(pod) for pod in after] == [images(pod) for pod in before]
    assert after[0]["metadata"]["uid"] == before[0]["metadata"]["uid"]
    assert (status["restarts.total"], status["restarts.disruptions"], status.get("restarts.charged")) == (2, 1, None)


def tag_as_later(key: str) -> None:
    """Gives an image of the product another tag as well, as of a later release."""
    name = product_images.image_name(key)
    one_machine.tag_image(background.DIRECTORY, name, f"{name.rpartition(':')[0]}:{LATER}")


def images(pod: Object) -> list[str]:
    """Of its containers."""
    kinds = ("initContainers", "containers")
    return [container["image"] for kind in kinds for container in pod["spec"].get(kind, ())]


def assert_goes_on(jobs: Jobs, before: Object) -> None:
    """The operator that is there now writes progress, and the job's pods are the same ones."""
    step = jobs.status(JOB)["step"]
    jobs.wait(JOB, "more steps in status", lambda status: status["step"] > step)
    assert state(jobs) == before


def state(jobs: Jobs) -> Object:
    """What a restart of any kind would change."""
    pods = jobs.pods(JOB)
    restarts = {c["name"]: c["restartCount"] for pod in pods for c in pod["status"]["containerStatuses"]}
    status = jobs.status(JOB)
    assert status["phase"] == "Running"
    (jobset,) = (each for each in jobs.cluster.items("jobsets", jobs.namespace) if each["metadata"]["name"] == JOB)
    return {
        "pods": [pod["metadata"]["uid"] for pod in pods],
        "restarts": restarts,
        "jobset": (jobset["metadata"]["uid"], jobset["metadata"]["generation"]),
        **{key: status.get(key, 0) for key in BOOKS},
    }


def holder(jobs: Jobs) -> str:
    """Name of the pod that leads; empty between two of them."""
    lease = wait_for(
        "the Lease",
        lambda: jobs.cluster.get("lease", "tpujob-operator", jobs.surroundings.operator_namespace),
        timeout_seconds=PATIENCE_SECONDS,
    )
    return str(lease["spec"].get("holderIdentity") or "")
