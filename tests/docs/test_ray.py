"""examples/ray.yaml: its shell line, as the page shows it and as a pod is given it. `make ray` runs it."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tpujob_operator.base.settings import Settings
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.rules.load import load_job

ROOT = Path(__file__).parents[2]


def read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return found


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return read((ROOT / "examples" / "ray.yaml").read_text())


def test_the_page_shows_the_example(example: dict[str, Any]) -> None:
    section = (ROOT / "docs" / "pytorch.md").read_text().partition("\n## Ray\n")[2]
    (shown,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert read(shown) == example


@pytest.mark.parametrize(("fields", "hosts"), [({}, 2), ({"accelerator": "v5e-16", "slices": 2}, 8)])
def test_every_host_is_given_the_line_as_it_stands(example: dict[str, Any], fields: dict[str, Any], hosts: int) -> None:
    job = load_job({**example, "spec": example["spec"] | fields})
    pods = expand_pods(build_jobset(job, Settings()))
    assert len(pods) == hosts
    # The kubelet would replace $(NAME) and $$.
    assert {tuple(pod.argv[-3:]) for pod in pods} == {tuple(example["spec"]["command"])}


def test_bash_can_read_the_line(example: dict[str, Any]) -> None:
    done = subprocess.run(["bash", "-n", "-c", example["spec"]["command"][-1]], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
