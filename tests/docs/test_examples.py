"""Every example is complete, accepted, and becomes a JobSet of the size that its header says."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tpujob_operator.base.settings import Settings
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.rules.load import load_job
from tpujob_trainer.config.schema import parse_config

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
NUMBERED = [file for file in FILES if file.name[0].isdigit() or file.parent.name == "maxtext"]


def name(file: Path) -> str:
    return str(file.relative_to(EXAMPLES))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_the_job_is_accepted_here_and_by_the_trainer(file: Path) -> None:
    job = load_job(YAML(typ="safe", pure=True).load(file.read_text()))
    assert build_jobset(job, Settings())["kind"] == "JobSet"
    if job.spec.trainer is not None:
        parse_config(job.spec.trainer)


@pytest.mark.parametrize("file", NUMBERED, ids=name)
def test_the_header_says_what_and_on_what(file: Path) -> None:
    text = file.read_text()
    for word in ("What", "Hardware", "Time", "Cost", "Expect"):
        assert re.search(rf"^# {word} ", text, re.MULTILINE), word
    assert re.search(rf"^#   tpujob (run|submit) examples/{re.escape(name(file))}$", text, re.MULTILINE)


@pytest.mark.parametrize("file", NUMBERED, ids=name)
def test_the_cost_counts_the_chips_of_the_jobset(file: Path) -> None:
    said = re.search(r"^# Cost +(\d+) chips", file.read_text(), re.MULTILINE)
    job = load_job(YAML(typ="safe", pure=True).load(file.read_text()))
    chips = job.hosts * job.accelerator.chips_per_host if job.accelerator.is_tpu else None
    assert (int(said[1]) if said else None) == chips


def test_the_list_has_every_example() -> None:
    listed = re.findall(r"\]\(([\w./-]+)\)", (EXAMPLES / "README.md").read_text())
    assert {name(file) for file in FILES if file.parent == EXAMPLES} | {"maxtext", "own-loop", "notebook.ipynb"} == set(
        listed
    )
