"""What the pages tell people to type exists: commands, options, make targets, files, links, jobs."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from tools import diagrams
from tools.structure.fields import yaml_blocks
from tpujob.main import app
from tpujob_contract.kubernetes_names import API_VERSION, KIND
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
NAMES = {"tpujob", "kubectl-tpujob"}
MOST_WORDS = 28_000
"""Of all guides, code and tables with them: without the reference and the runbooks, which commands write."""


def commands(text: str) -> Iterator[list[str]]:
    """Each `tpujob …` of code blocks and of code in running text, as its words."""
    blocks = re.findall(r"```(?:bash|console|sh)?\n(.*?)```", text, re.DOTALL)
    blocks += re.findall(r"(?:^ {4}.*\n?)+", text, re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`(tpujob [^`]+)`", text)
    for line in lines:
        if line.startswith("tpujob "):
            words = shlex.split(line.split("  ")[0].split("#")[0].split("(")[0], posix=True)
            yield words[1:]


def problem(words: list[str]) -> str | None:
    """What is wrong with a command line, as far as its verb and the names of its options go."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and getattr(command, "commands", None):
        if rest[0].startswith("-"):
            break
        if "|" in rest[0] or rest[0].isupper():
            return None  # the reader puts one of several here
        if rest[0] not in command.commands:
            return f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "--install-completion", "--show-completion"}
    wrong = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in known]
    return f"no option {wrong[0]}" if wrong else None


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_and_options_exist(page: Path) -> None:
    assert {shlex.join(words): why for words in commands(page.read_text()) if (why := problem(words))} == {}


def test_commands_are_found_and_judged() -> None:
    text = "    tpujob run job.yaml --jsn\n\n`tpujob lgos x` and\n\n```bash\ntpujob data inspect x --seed 1\n```\n"
    found = list(commands(text))
    assert [problem(words) for words in found] == [None, "no option --jsn", "no command lgos"]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z][a-z0-9-]*)", page.read_text(), re.MULTILINE))
    assert named - targets == set()


def test_make_help_lists_the_targets() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("help", "demo", "test", "lint", "fmt", "cluster", "bench"):
        assert re.search(rf"^  make {target}\b", shown, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_image_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert targets
    assert set(re.findall(r"build --target (\S+)", page.read_text())) - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_relative_links_lead_somewhere(page: Path) -> None:
    # Words of a path alone: what is quoted of the code has patterns that look like links.
    prose = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([\w./-]+)(?:#[\w-]*)?\)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_row_of_the_stories_names_what_shows_it() -> None:
    text = (ROOT / "docs" / "stories.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 30
    for row in rows:
        shown = re.findall(r"`((?:tests|examples)[\w./-]*)`", row[-1])
        assert len(row) == 3, row
        assert shown, row
        assert [path for path in shown if not (ROOT / path).exists()] == []


def jobsets(page: Path) -> Iterator[dict[str, Any]]:
    """The JobSet of each whole job of a page."""
    for block in re.findall(r"```yaml\n(apiVersion: tpujob\.dev.*?)```", page.read_text(), re.DOTALL):
        manifest = YAML(typ="safe", pure=True).load(block)
        if "command" in manifest["spec"]:
            # `tpujob run` needs no image.
            manifest["spec"].setdefault("image", "registry.example/own:1")
        yield build_jobset(load_job(manifest), JobSettings())


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_whole_jobs_are_accepted(page: Path) -> None:
    assert {jobset["kind"] for jobset in jobsets(page)} <= {"JobSet"}


def test_the_first_job_of_the_readme_is_256_chips_in_two_slices() -> None:
    (workers,) = next(jobsets(ROOT / "README.md"))["spec"]["replicatedJobs"]
    assert (workers["replicas"], workers["template"]["spec"]["parallelism"]) == (2, 64)


BASE: dict[str, Any] = {
    "accelerator": "v5e-16",
    "trainer": {
        "model": {"preset": "tiny"},
        "data": {"path": "/data/*.parquet", "tokenizer": "bytes"},
        "batchSize": 64,
        "sequenceLength": 512,
        "steps": 1000,
    },
}


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "options").glob("*.md")), ids=lambda page: page.name)
def test_parts_of_a_job_are_accepted(page: Path) -> None:
    blocks = list(yaml_blocks(page.read_text()))
    assert blocks
    refused = {block: str(why) for block in blocks if (why := refusal(YAML(typ="safe", pure=True).load(block)))}
    assert refused == {}


def refusal(part: dict[str, Any]) -> InvalidJob | None:
    """Why a small job that takes over the fields of `part` is refused."""
    trainer = {**BASE["trainer"], **part.get("trainer", {})}
    if "task" in trainer:
        del trainer["steps"]
    spec = {**BASE, **part, "trainer": trainer}
    if "command" in spec:
        del spec["trainer"]
    try:
        load_job({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "part"}, "spec": spec})
    except InvalidJob as error:
        return error
    return None


def test_a_part_that_no_job_may_have_is_refused() -> None:
    assert "spec.trainer.zLos" in str(refusal({"trainer": {"zLos": 1}}))


def test_the_guides_are_short() -> None:
    written = {ROOT / "docs" / "reference", ROOT / "docs" / "runbooks"}
    guides = [page for page in PAGES if ROOT / "docs" in page.parents and page.parent not in written]
    assert sum(len(page.read_text().split()) for page in guides) <= MOST_WORDS


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text())
    }
    assert {str(page) for page in PAGES if page.name != "README.md" and page not in linked} == set()


def test_drawings_are_those_of_their_sources() -> None:
    sources = sorted(diagrams.SOURCES.glob("*.mmd"))
    assert sources
    drawn = {source.name: (diagrams.DRAWINGS / f"{source.stem}.svg").read_text() for source in sources}
    assert [s.name for s in sources if not drawn[s.name].startswith(diagrams.stamp_of(s))] == [], "run `make diagrams`"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_diagram_needs_a_script(page: Path) -> None:
    assert "```mermaid" not in page.read_text()
