"""The mutants of `make mutation` are what they say, and its table of mistakes follows the code."""

import ast
import importlib.util
from pathlib import Path

import pytest

from tools.mutation.mutants import mutants
from tools.mutation.named import MISTAKES, ROOT, Mistake
from tools.mutation.targets import EQUIVALENT, TARGETS


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("x = a < b", {"a <= b"}),
        ("x = a and b", {"a", "b"}),
        ("x = not a", {"a"}),
        ("x = a + b", {"a - b"}),
        ("x = 3", {"4", "2"}),
        ("x = True", {"False"}),
        ("x = a if b else c", {"a", "c", "not b"}),
        ("if a:\n    pass", {"not a"}),
        ("x: Literal[3] = a", set()),
        ("x = f'{a + 1}'", set()),
        ("'''3'''", set()),
        ("LIMIT_SECONDS = 3", set()),
        ("LIMIT_SECONDS = (1 << a) - b", {"(1 << a) + b", "2", "0"}),
    ],
)
def test_each_form_has_its_mutants(source: str, changed: set[str]) -> None:
    assert {mutant.after for mutant in mutants(source)} == changed


def test_one_mutant_is_one_change() -> None:
    source = "def f(a):\n    return a + 1 if a else 2\n"
    for mutant in mutants(source):
        assert mutant.function == 1
        assert ast.dump(mutant.make()) != ast.dump(ast.parse(source))
    assert len({ast.unparse(mutant.make()) for mutant in mutants(source)}) == len(list(mutants(source)))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_named_mistake_is_possible_still(mistake: Mistake) -> None:
    ast.parse(mistake.source())
    for test in mistake.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists()
        assert not name or f"def {name}(" in (ROOT / file).read_text()


def test_every_decision_is_a_target() -> None:
    source = ROOT / "operator" / "src"
    decide = [file for file in (source / "tpujob_operator" / "decide").rglob("*.py") if file.stem != "__init__"]
    modules = {".".join(file.relative_to(source).with_suffix("").parts) for file in decide}
    assert modules - TARGETS.keys() == set()


def test_targets_have_tests() -> None:
    for name, starts in TARGETS.items():
        for start in starts:
            folder, _, prefix = start.rpartition("/")
            assert [path for path in (ROOT / folder).rglob("test_*.py") if path.name.startswith(prefix)], (name, start)


@pytest.mark.parametrize("module", sorted({module for module, *_ in EQUIVALENT}))
def test_equivalent_mutants_exist(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    there = {(mutant.text, mutant.before, mutant.after) for mutant in mutants(Path(spec.origin).read_text())}
    assert {tuple(entry) for name, *entry in EQUIVALENT if name == module} - there == set()
