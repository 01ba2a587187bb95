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

from tpujob.main import app
from tpujob_operator.api.load import load_job

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
NAMES = {"tpujob", "kubectl-tpujob"}


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
            return None  # a placeholder for one of several
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


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_relative_links_lead_somewhere(page: Path) -> None:
    # Words of a path alone: what is quoted of the code has patterns that look like links.
    links = re.findall(r"\]\(([\w./-]+)(?:#[\w-]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_whole_jobs_are_accepted(page: Path) -> None:
    for block in re.findall(r"```yaml\n(apiVersion: tpujob\.dev.*?)```", page.read_text(), re.DOTALL):
        load_job(YAML(typ="safe", pure=True).load(block))


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text())
    }
    assert {str(page) for page in PAGES if page.name != "README.md" and page not in linked} == set()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / ".venv/bin/mkdocs"), "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "index.html").exists()
