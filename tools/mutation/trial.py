"""One mutant in a forked process: the module is imported in its changed form, and its tests run."""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

LIMIT_SECONDS = 120.0
"""A mutant whose tests take longer runs for ever, and is noticed."""


NOT_PRELOADED = ("tpujob", "tests", "tools", "__main__", "conftest", "pytest_", "xdist")
"""How names of modules begin that each trial imports anew: ours, and pytest's plugins."""
OPTIONS = ("-x", "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--hypothesis-seed=0")


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module in its changed form."""

    def __init__(self, name: str, tree: ast.Module, path: Path) -> None:
        self._name, self._tree, self._path = name, tree, path

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._tree, str(self._path), "exec"), module.__dict__)  # noqa: S102 - what a loader does


def preload(tests: Sequence[str]) -> None:
    """Imports the libraries that these tests need, and nothing of ours: every trial is a fork of this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _silence()
        pytest.main([*tests, "--collect-only", *OPTIONS])
        names = [name for name in sys.modules if not name.startswith(NOT_PRELOADED)]
        with os.fdopen(writer, "w") as out:
            out.write("\n".join(names))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        names = told.read().split()
    os.waitpid(pid, 0)
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def is_noticed(name: str, tree: ast.Module, path: Path, tests: Sequence[str]) -> bool:
    """Whether tests fail with this form of a module."""
    pid = os.fork()
    if pid == 0:
        _run(name, tree, path, tests)
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status != 0
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def _run(name: str, tree: ast.Module, path: Path, tests: Sequence[str]) -> None:
    code = 1
    try:
        _silence()
        # A package's own __init__ may have imported the module as it is.
        for loaded in [each for each in sys.modules if each.startswith(("tpujob", "tests"))]:
            del sys.modules[loaded]
        sys.meta_path.insert(0, Changed(name, tree, path))
        code = int(pytest.main([*tests, *OPTIONS]))
    finally:
        os._exit(code)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
