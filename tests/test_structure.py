"""`make structure` counts what it says, and its limits refuse what is worse."""

import ast
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tools.structure import fields, limits, rooms, sizes
from tools.structure.measured import BESIDE, PACKAGES, Structure

STRUCTURE = Structure(
    arrows=[rooms.Arrow("house.attic", "house.cellar")],
    cycles=[],
    lines=dict.fromkeys((*PACKAGES, *BESIDE), 100),
    fields_without_example=["trainer.model.window"],
    long_functions={"house.py:build": 61},
    long_files={},
)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two rooms, `attic` above `cellar`."""
    folder = tmp_path / "house"
    for room in ("attic", "cellar"):
        (folder / room).mkdir(parents=True)
        (folder / room / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "main.py").write_text("import house.attic.roof\n")
    (folder / "attic" / "roof.py").write_text("from house import cellar\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def arrows() -> list[str]:
    return [str(arrow) for arrow in rooms.arrows(["house"], cache_dir=None)]


def test_imports_between_modules_are_arrows_between_rooms(house: Path) -> None:
    assert arrows() == ["house -> house.attic", "house.attic -> house.cellar"]


def test_rooms_that_import_no_other_have_no_arrow_and_no_cycle(house: Path) -> None:
    assert rooms.cycles(rooms.arrows(["house"], cache_dir=None)) == []


@pytest.mark.parametrize(
    ("module", "text", "way"),
    [
        ("cellar/wine.py", "import house.attic\n", {"house.attic", "house.cellar"}),
        ("cellar/wine.py", "import house.main\n", {"house", "house.attic", "house.cellar"}),
    ],
    ids=["sibling", "root"],
)
def test_a_circle_of_rooms_is_a_cycle_and_a_root_is_a_room(house: Path, module: str, text: str, way: set[str]) -> None:
    (house / module).write_text(text)
    [found] = rooms.cycles(rooms.arrows(["house"], cache_dir=None))
    assert set(found) == way


def test_code_is_neither_blank_nor_comment_nor_docstring() -> None:
    head = '"""A module."""\n\n# Why.\nNAME = """\na\n"""\n\n\n'
    assert sizes.code_lines_of(head + 'def f():\n    """A sum."""\n    return (\n        1  # one\n    )\n') == 7


def test_a_long_function_is_found_wherever_it_stands(tmp_path: Path) -> None:
    body = "        pass\n" * sizes.MOST_LINES_OF_A_FUNCTION
    (tmp_path / "module.py").write_text(f"if True:\n    def long():\n{body}\n\ndef short():\n    pass\n")
    assert list(sizes.long_functions(tmp_path)) == [f"{tmp_path}/module.py:long"]


def test_statements_are_all_that_ast_knows() -> None:
    """Also those in `match`, `try` and the branches of `if`."""
    tree = ast.parse(Path(ast.__file__).read_text() + "\nmatch x:\n    case 1:\n        def f(): pass\n")
    assert set(sizes.statements(tree)) == {node for node in ast.walk(tree) if isinstance(node, ast.stmt)}


FIELDS = [("workers",), ("trainer",), ("trainer", "data"), ("trainer", "data", "path"), ("trainer", "model", "path")]


@pytest.mark.parametrize(
    ("mention", "field"),
    [
        ("spec.workers", "workers"),
        ("workers", "workers"),
        ("data.path", "trainer.data.path"),
        ("path", None),
        ("metadata", None),
        ("spec", None),
    ],
)
def test_a_mention_names_one_field_or_none(mention: str, field: str | None) -> None:
    named = [".".join(path) for path in fields.named_by(tuple(mention.split(".")), FIELDS)]
    assert named == ([field] if field else [])


def test_a_block_shows_the_same_fields_of_another_block() -> None:
    paths = [tuple(path.split(".")) for path in ("trainer.data.path", "trainer.evaluation.data.path")]
    assert list(fields.same_fields(paths[1], paths)) == [paths[1], paths[0]]
    assert list(fields.same_fields(paths[0], paths)) == [paths[0]]


def test_pages_show_fields_in_yaml_and_in_code() -> None:
    page = "Set `restarts.crashes`, or `keep: 3`.\n\n- so:\n\n  ```yaml\n  data:\n    path: /x\n  ```\n\n    seed: 1\n"
    assert {".".join(path) for path in fields.mentions_of_page(page)} == {
        "restarts.crashes",
        "keep",
        "data",
        "data.path",
        "seed",
    }


REACHED = limits.reached(STRUCTURE)
TEXT = "".join(f"{name} = {figure}\n" for name, figure in REACHED.items())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, None),
        ({"arrows": [], "fields_without_example": [], "long_functions": {}}, None),
        ({"arrows": 2 * STRUCTURE.arrows}, "arrows: 2, the limit is 1"),
        ({"cycles": [["house.a", "house.b", "house.a"]]}, "cycles: 1, the limit is 0"),
        ({"fields_without_example": ["a", "b"]}, "fields without example: 2, the limit is 1"),
        ({"long_functions": {"a": 61, "b": 70}}, "long functions: 2, the limit is 1"),
        ({"long_files": {"a": 501}}, "long files: 1, the limit is 0"),
        ({"lines": STRUCTURE.lines | {"trainer": 501}}, "source lines: 1500, the limit is 1000"),
        ({"lines": STRUCTURE.lines | {"tools": 501}}, "tools lines: 1000, the limit is 500"),
        ({"lines": STRUCTURE.lines | {"tests": 501}}, "tests lines: 1000, the limit is 500"),
        ({"lines": STRUCTURE.lines | {"benchmarks": 501}}, "benchmarks lines: 1000, the limit is 500"),
    ],
    ids=lambda value: next(iter(value), "nothing") if isinstance(value, dict) else "",
)
def test_what_is_worse_is_refused_by_name(changes: dict, sentence: str | None) -> None:
    now = limits.reached(replace(STRUCTURE, **changes))
    assert list(limits.broken(now, limits.read(TEXT))) == ([sentence] if sentence else [])


def test_figures_that_fell_are_kept_without_their_reasons() -> None:
    text = "# Head.\narrows = 9  # a new room\ncycles = 0\n"
    assert limits.lowered(text, {"arrows": 5, "cycles": 3}) == "# Head.\narrows = 5\ncycles = 0\n"


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("arrows = 5  # first", False),
        ("arrows = 4", False),
        ("arrows = 6", True),
        ("arrows = 6  # first", True),
        ("arrows = 6  # second", False),
    ],
)
def test_a_figure_rises_with_a_new_reason_alone(text: str, is_refused: bool) -> None:
    assert bool(list(limits.unexplained(text, "arrows = 5  # first"))) is is_refused


def test_the_file_before_its_last_change_is_that_of_git(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    file = tmp_path / "limits.toml"
    git("init")
    for text in ("one", "two"):
        file.write_text(text)
        git("add", ".")
        git("commit", "-m", text)
    assert limits.before(file) == "one"
    file.write_text("three")
    assert limits.before(file) == "two"
