"""Runs the tests that changed files can reach by imports, the nearest first, for as long as SECONDS of processor.

python -m tools.quick [BASE]

Changed is what differs from the commit BASE, or from the last one, and what git does not know yet. A file of another
kind reaches the modules that name it. What a test starts as a process is no import: `make test` and `make scenes` play
that.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools import run_tests, test_costs

ROOT = Path(__file__).parents[1]
SOURCES = (*sorted(ROOT.glob("*/src")), ROOT)
SECONDS = 150.0
"""Of processor: on two cores, two minutes with what it takes to begin."""
UNKNOWN_COST = 1.0
OTHER_KINDS = ("tests/scenes/", "tests/e2e/")

Graph = dict[str, set[str]]


def main(base: str = "HEAD") -> int:
    """The exit code of the tests."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard")
    files = {file: (ROOT / file).read_text() for file in listed if file.endswith(".py") and (ROOT / file).is_file()}
    changed = {*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")}
    distances = reached(imports(files), starts(changed, files))
    tests = {file: at for file, at in distances.items() if re.search(r"^tests/(.*/)?test_\w+\.py$", file)}
    here = {file: at for file, at in tests.items() if not file.startswith(OTHER_KINDS)}
    chosen = within(here, test_costs.kept(), SECONDS)
    left = len(tests) - len(chosen)
    run_tests.say(f"{len(changed)} changed files reach {len(tests)} files of tests: {len(chosen)} are played")
    if left:
        run_tests.say(f"left out: {left}, of them {len(tests) - len(here)} of scenes and pods; `make help` has them")
    workers = os.environ.get("WORKERS", "2")
    return run_tests.main(["-q", f"--numprocesses={workers}", "--", *chosen]) if chosen else 0


def starts(changed: Iterable[str], files: Mapping[str, str]) -> set[str]:
    """Modules that changed, and those that name a changed file of another kind."""
    others = {Path(file).name for file in changed if not file.endswith(".py")}
    named = {file for file, text in files.items() if any(name in text for name in others)}
    return {file for file in changed if file in files} | named


def imports(files: Mapping[str, str]) -> Graph:
    """Which files each file imports; tests import the conftest.py of their folders, as pytest does."""
    modules = {module(file): file for file in files}
    graph: Graph = {}
    for file, text in files.items():
        names = imported(text)
        found = {modules[name] for name in names if name in modules}
        if file.startswith("tests/"):
            found |= {f"{folder}/conftest.py" for folder in map(str, Path(file).parents)} & files.keys()
        graph[file] = found - {file}
    return graph


def imported(text: str) -> set[str]:
    """Names of modules that a module may import: `from a import b` may be of a.b or of a."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def module(file: str) -> str:
    """The name under which a file is imported."""
    path = ROOT / file
    source = next(folder for folder in SOURCES if path.is_relative_to(folder))
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def reached(graph: Graph, begin: Iterable[str]) -> dict[str, int]:
    """Files that import one of these, at whatever distance, with the distance."""
    importers: Graph = {}
    for file, found in graph.items():
        for each in found:
            importers.setdefault(each, set()).add(file)
    distances = dict.fromkeys(begin, 0)
    edge = list(distances)
    for file in edge:  # grows
        nearer = importers.get(file, set()) - distances.keys()
        distances |= dict.fromkeys(nearer, distances[file] + 1)
        edge += sorted(nearer)
    return distances


def within(tests: Mapping[str, int], costs: Mapping[str, float], seconds: float) -> list[str]:
    """The nearest tests whose costs are so many seconds together; of one distance, the cheapest first."""
    chosen: list[str] = []
    for file in sorted(tests, key=lambda file: (tests[file], costs.get(file, UNKNOWN_COST), file)):
        seconds -= costs.get(file, UNKNOWN_COST)
        if seconds < 0:
            break
        chosen.append(file)
    return chosen


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
