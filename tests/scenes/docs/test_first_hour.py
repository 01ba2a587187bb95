"""What the pages tell a newcomer to type, typed in an empty folder: demo aside, all that needs no cluster."""

import re
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.newcomer import PATH, ROOT, SIDE_PATH, Newcomer, block, commands, section

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1500)]

ENDLESS = 1_000_000
LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#[\w-]*)?\)")


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    texts = tmp_path / "my-texts"
    texts.mkdir()
    for page in (ROOT / "docs").glob("*.md"):
        (texts / page.name).write_text(page.read_text())
    return Newcomer(tmp_path)


@pytest.mark.parametrize("path", [PATH, SIDE_PATH], ids=["with text", "with a program"])
def test_each_page_is_linked_from_the_section_before(path: tuple[tuple[str, str], ...]) -> None:
    for (page, title), (following, _) in pairwise(path):
        links = {(ROOT / page).parent / link for link in LINK.findall(section(page, title))}
        assert following == page or (ROOT / following) in {link.resolve() for link in links}, (page, title)


def until_a_step(process: subprocess.Popen[str]) -> str:
    """Reads what is printed up to the first step."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("step "):
            return said
    pytest.fail(said)


def test_own_text_is_trained_on_stopped_resumed_and_changed(newcomer: Newcomer) -> None:
    from_folder, new, check, run = commands("README.md", "Your own text")
    inspect, listed = commands("README.md", "Your own text", 1)
    assert "my-data" in newcomer.types(inspect, code=77)
    assert "in 1 parquet file\n" in newcomer.types(from_folder)
    assert "first global batch: 16 rows" in newcomer.types(inspect)
    assert f"`{run}` starts it" in newcomer.types(new)
    # However fast the machine is, it is not over before it is stopped.
    newcomer.edits("job.yaml", "steps: 200", f"steps: {ENDLESS}")
    assert f"run: {ENDLESS:,} steps of 16 x 128 tokens" in newcomer.types(check)

    # As a context, which closes the pipe.
    with newcomer.start(run) as first:
        assert "starting" in until_a_step(first)
        first.send_signal(signal.SIGINT)
        assert first.stdout is not None
        said = first.stdout.read()
    assert first.returncode == 75
    stopped = re.search(r"stopped: saved at step (\d+); `(.*)` goes on from there", said)
    assert stopped, said
    last = int(stopped[1]) + 2
    newcomer.edits("job.yaml", f"steps: {ENDLESS}", f"steps: {last}")
    resumed = newcomer.types(stopped[2])
    assert f"resumed from step {stopped[1]}" in resumed
    assert f"finished at step {last}" in resumed
    assert resumed.splitlines()[-1].startswith("report       .tpujob/default/my-model/report.html")
    assert "Loss by step" in (newcomer.folder / ".tpujob/default/my-model/report.html").read_text()
    assert re.search(rf"^ +{last} ", newcomer.types(listed), re.MULTILINE)

    newcomer.edits("job.yaml", "{preset: tiny}", "{preset: tiny, layers: 2}")
    assert "metadata.name" in newcomer.types(run, code=78)
    newcomer.edits("job.yaml", "name: my-model", "name: another")
    newcomer.edits("job.yaml", f"steps: {last}", "steps: 2")
    assert "finished at step 2" in newcomer.types(run)


def test_a_larger_model_trains_under_another_name(newcomer: Newcomer) -> None:
    newcomer.types(commands("README.md", "Your own text")[0])
    new, check, run = commands("docs/laptop.md", "A larger model")
    newcomer.types(new)
    assert "model: 75.8 M parameters" in newcomer.types(check)
    newcomer.edits("larger.yaml", "steps: 200", "steps: 1")
    assert "finished at step 1" in newcomer.types(run)


def test_the_same_job_on_tpus_is_summed_up(newcomer: Newcomer) -> None:
    new, check = commands("docs/laptop.md", "The same job on TPUs")
    assert "`tpujob submit tpu.yaml` starts it" in newcomer.types(new)
    said = newcomer.types(check)
    assert "4 hosts (ct5lp-hightpu-4t), 16 chips" in said
    assert "chip-hours" in said
    assert "warning" not in said


def test_a_program_of_ones_own_finds_the_others(newcomer: Newcomer) -> None:
    (newcomer.folder / "train.py").write_text(block("docs/bring-your-own.md", "Image", "python"))
    (newcomer.folder / "own.yaml").write_text(block("README.md", "Your own program", "yaml"))
    for run in commands("README.md", "Your own program"):
        said = newcomer.types(run)
        assert "process 0 of 2 sees 4 devices" in said, run
        assert "finished" in said, run
