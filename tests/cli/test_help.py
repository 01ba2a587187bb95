"""`tpujob --help`: every verb below a heading, with a summary that 80 columns hold."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from tpujob.main import PANELS, SUMMARY_CHARACTERS, app

GROUPS: tuple[list[str], ...] = ([], ["data"], ["checkpoint"], ["extract"])


def test_each_verb_stands_below_one_heading() -> None:
    shown = [verb for verbs in PANELS.values() for verb in verbs]
    assert sorted(shown) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: " ".join(group) or "tpujob")
def test_no_summary_is_cut(group: list[str]) -> None:
    text = CliRunner().invoke(app, [*group, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    _, _, verbs = text.partition("--help")
    lines = [line for line in verbs.splitlines() if line.startswith("  ")][1:]
    assert len(lines) >= 2
    assert not [line for line in lines if "..." in line or len(line) > 80]
    assert max(len(line.split(maxsplit=1)[1]) for line in lines) <= SUMMARY_CHARACTERS
