"""What the pages tell a newcomer to type, typed in an empty folder, and needs no cluster.

The demo aside, and "Your own text", which `test_five_users.py` types.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.newcomer import PATH, ROOT, SIDE_PATH, Newcomer, block, commands, section

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1500)]

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


def test_a_larger_model_is_summed_up_under_another_name(newcomer: Newcomer) -> None:
    newcomer.types(commands("README.md", "Your own text")[0])
    new, check, run = commands("docs/laptop.md", "A larger model")
    assert f"`{run}` starts it" in newcomer.types(new)
    assert "model: 75.8 M parameters" in newcomer.types(check)


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
