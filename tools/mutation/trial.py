"""Runs one mutant in a forked process, which imports the changed module and runs tests."""

import ast
import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
import types
from collections.abc import Collection, Sequence
from pathlib import Path

import grimp
import pytest

from tools.mutation.reach import Reach, Recorder

ROOT = Path(__file__).parents[2]
LEAST_SECONDS = 30.0
TIMES_AS_LONG = 10.0
"""A mutant whose tests take this many times their usual processor time is an endless loop, and counts as detected."""
IDLE_TIMES = 20.0
"""Limit of their wall time, times their processor time: other processes may be busy, or the mutant waits forever."""

NOT_PRELOADED = ("tests", "tools", "__main__", "conftest", "pytest_", "xdist")
"""Prefixes of the names of modules that each trial imports again: tests, and pytest's plugins."""
OPTIONS = ("-x", "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--hypothesis-seed=0")


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed form of one module."""

    def __init__(self, name: str, tree: ast.Module, path: Path) -> None:
        self._name, self._tree, self._path = name, tree, path

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._tree, str(self._path), "exec"), module.__dict__)  # noqa: S102 - what a loader does


def record(tests: Sequence[str], files: Collection[str]) -> Reach:
    """Runs the tests on the unchanged code, and imports the modules that they need before trials fork this process.

    Raises:
        RuntimeError: A test fails.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _record(writer, tests, files)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        names, _, text = pipe.read().partition("\n")
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"these tests fail without any change: {' '.join(tests)}")
    imports()
    sys.dont_write_bytecode = False  # so that pytest rewrites the assertions of a test file once, not in every trial
    for name in names.split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return Reach.from_text(text)


def is_noticed(
    name: str, tree: ast.Module, path: Path, tests: Sequence[str], seconds: float, *, directory: Path = ROOT
) -> bool:
    """Whether tests fail, or exceed their time, with this form of a module; `seconds` is their usual time."""
    allowed = max(LEAST_SECONDS, TIMES_AS_LONG * seconds)
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(allowed), resource.RLIM_INFINITY))
        os.chdir(directory)
        _run(name, tree, path, tests)
    deadline = time.monotonic() + IDLE_TIMES * allowed
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status != 0
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def _record(writer: int, tests: Sequence[str], files: Collection[str]) -> None:
    code = 1
    try:
        _silence()
        sys.dont_write_bytecode = False
        recorder = Recorder(files)
        code = int(pytest.main([*tests, *OPTIONS], plugins=[recorder]))
        names = [name for name in sys.modules if not name.startswith(NOT_PRELOADED)]
        with os.fdopen(writer, "w") as out:
            out.write(f"{' '.join(names)}\n{recorder.text()}")
    finally:
        os._exit(code)


def _run(name: str, tree: ast.Module, path: Path, tests: Sequence[str]) -> None:
    code = 1
    try:
        _silence()
        _forget(name)
        sys.meta_path.insert(0, Changed(name, tree, path))
        code = int(
            pytest.main([*(str(ROOT / test) for test in tests), f"--config-file={ROOT}/pyproject.toml", *OPTIONS])
        )
    finally:
        os._exit(code)


def _forget(name: str) -> None:
    """Removes a module, and those that import it directly or indirectly, from this process."""
    for each in {name, *imports().find_downstream_modules(name)} & sys.modules.keys():
        parent, _, last = each.rpartition(".")
        if hasattr(sys.modules.get(parent), last):
            delattr(sys.modules[parent], last)
        del sys.modules[each]


@functools.cache
def imports() -> grimp.ImportGraph:
    """The import graph of contract, operator and trainer."""
    return grimp.build_graph("tpujob_contract", "tpujob_operator", "tpujob_trainer", cache_dir=None)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
