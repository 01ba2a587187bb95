"""Records which tests call which functions, so that a mutant runs only those tests."""

from __future__ import annotations

import itertools
import json
import sys
import time
import types
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

MONITOR = sys.monitoring.PROFILER_ID
MOST_SECONDS = 10.0
"""A mutant is judged by the fastest tests that together take less processor time than this."""


class Recorder:
    """A pytest plugin that records which tests call which functions of the given files."""

    def __init__(self, files: Collection[str]) -> None:
        self._files = set(files)
        self._test = ""
        self._entered: dict[str, set[str]] = {}
        self._seconds: dict[str, float] = {}
        sys.monitoring.use_tool_id(MONITOR, "mutation")
        sys.monitoring.register_callback(MONITOR, sys.monitoring.events.PY_START, self._enter)
        sys.monitoring.set_events(MONITOR, sys.monitoring.events.PY_START)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        # Functions that the setup of one test calls, e.g. in a module fixture, count for all tests of the file.
        self._start(item.nodeid.partition("::")[0])
        return (yield from self._measured(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._start(item.nodeid)
        return (yield from self._measured(item))

    def _measured(self, item: pytest.Item) -> Generator[None, Any, Any]:
        # Processor time: the load of the machine must not affect which tests judge a mutant.
        before = time.process_time()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = self._seconds.get(item.nodeid, 0.0) + time.process_time() - before

    def text(self) -> str:
        """The records as text, for `Reach.from_text`."""
        sys.monitoring.free_tool_id(MONITOR)
        entered = {test: sorted(functions) for test, functions in self._entered.items()}
        return json.dumps({"entered": entered, "seconds": self._seconds})

    def _start(self, test: str) -> None:
        self._test = test
        sys.monitoring.restart_events()

    def _enter(self, code: types.CodeType, offset: int) -> object:
        if code.co_filename in self._files:
            self._entered.setdefault(self._test, set()).add(f"{code.co_filename}:{code.co_firstlineno}")
        return sys.monitoring.DISABLE


@dataclass(frozen=True)
class Reach:
    """The records: for each test, or file of tests, `file:first line` of the functions that it calls."""

    entered: Mapping[str, Collection[str]]
    seconds: Mapping[str, float]

    @classmethod
    def from_text(cls, text: str) -> Reach:
        """Parses the text of `Recorder.text`."""
        read = json.loads(text)
        return cls({test: frozenset(functions) for test, functions in read["entered"].items()}, read["seconds"])

    def tests(self, file: str, function: int | None, among: Collection[str]) -> list[str]:
        """The tests with a path prefix in `among` that call a function (None: all tests), fastest first, up to 10 s."""
        found = [test for test in self.seconds if test.startswith(tuple(among))]
        if function is not None:
            place = f"{file}:{function}"
            found = [test for test in found if any(place in self._of(each) for each in (test, test.partition("::")[0]))]
        found.sort(key=lambda test: self.seconds[test])
        until = itertools.accumulate(self.seconds[test] for test in found)
        return [test for test, seconds in zip(found, until, strict=True) if seconds < MOST_SECONDS]

    def _of(self, test: str) -> Collection[str]:
        return self.entered.get(test, ())
