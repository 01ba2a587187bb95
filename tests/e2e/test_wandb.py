"""An offline W&B run in pods of the image that images/extended/Dockerfile makes of the trainer's."""

import logging
import shutil

import pytest

from tests.e2e.jobs import Jobs
from tests.e2e.surroundings import Surroundings
from tests.trainer.telemetry import wandb_files
from tools.localcluster import background, one_machine
from tpujob_trainer.model.config import ModelConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

STEPS = 20
MODEL = {"layers": 1, "embedDim": 32, "heads": 2}
logger = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def image(surroundings: Surroundings) -> str:
    if not surroundings.is_own or shutil.which("buildah") is None:
        pytest.skip("needs buildah and the images of `make cluster`")
    return one_machine.add_image(background.DIRECTORY, "extended", logger.info)


@pytest.fixture
def namespace_labels() -> dict[str, str]:
    return {"pod-security.kubernetes.io/enforce": "restricted"}


def test_offline_run_of_wandb_is_one_and_says_what_ran_where(image: str, jobs: Jobs) -> None:
    jobs.train(
        "tracked",
        steps=STEPS,
        image=image,
        env=[{"name": "WANDB_MODE", "value": "offline"}],
        trainer={"model": MODEL, "logEverySteps": 5, "trackers": {"wandb": {"project": "tests"}}},
    )
    jobs.wait_phase("tracked", "Succeeded")

    (run,) = (name for name in jobs.objects("tracked", "wandb/") if name.endswith(".wandb"))
    data = jobs.read("tracked", run)
    assert wandb_files.steps(data) == [1, 5, 10, 15, 20]
    config = wandb_files.config(data)
    assert config["model"]["embedDim"] == MODEL["embedDim"]
    assert (config["batchSize"], config["steps"], config["numDevices"]) == (8, STEPS, 2)
    shape = ModelConfig(layers=1, embed_dim=32, heads=2).resolve(
        vocabulary=config["model"]["vocabSize"], platform="cpu"
    )
    assert config["numParameters"] == shape.num_parameters
    assert config["hosts"] == [pod["spec"]["hostname"] for pod in jobs.pods("tracked")]
