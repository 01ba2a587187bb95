"""Who failed first: one table for launcher 0, `tpujob run` and the operator."""

from dataclasses import replace

import pytest

from tpujob_contract.reports.first_end import ProcessEnd, first_of


def end(at: float, code: int = 1) -> ProcessEnd:
    """By itself, at a time that is known exactly."""
    return ProcessEnd(code, at)


def echo(at: float, code: int = 1) -> ProcessEnd:
    """Of a process whose message names another one."""
    return ProcessEnd(code, at, names_another=True)


def asked(at: float, code: int = 143) -> ProcessEnd:
    """Of a process that was asked to stop before it ended."""
    return ProcessEnd(code, at, was_asked=True)


def own(at: float, code: int) -> ProcessEnd:
    """Of a process that says when it failed or stopped, and was asked to stop after that."""
    return ProcessEnd(code, at, was_asked=True, is_own_time=True)


def lost(at: float) -> ProcessEnd:
    """Of a pod that is gone."""
    return ProcessEnd(137, at, is_lost=True)


def seen(at: float, code: int = 1) -> ProcessEnd:
    """As Kubernetes states it, to the second."""
    return ProcessEnd(code, at, is_cut=True)


FIRST = {
    # name: (the first end, the others)
    "the only one": (end(5), []),
    "the earliest": (end(4), [end(5)]),
    "the earliest, which is not the first report": (end(100.0, 137), [end(100.02)]),
    # Exit codes that end the job.
    "a fatal code, however late": (end(9, 78), [end(1)]),
    "a fatal code, though another was killed": (end(12, 77), [end(10, 137)]),
    "the earlier of two fatal codes": (end(1, 76), [end(2, 77)]),
    "a fatal code, though it was asked to stop": (asked(5, 78), [end(1)]),
    "of two fatal codes the one that names no other": (end(2, 78), [echo(1, 78)]),
    # Requests to stop.
    "not one that was asked to stop": (end(7), [asked(5)]),
    "not one that was killed as it did not leave in time": (end(10), [asked(9, 137)]),
    "one that had failed before it was asked": (own(10.0, 3), [end(12.5)]),
    "one that had frozen before another failed": (own(10, 137), [end(40)]),
    "one that was evicted before its peer failed of it": (own(9.5, 75), [end(10)]),
    "not one that was asked since its peer has failed": (end(10), [own(10.5, 75)]),
    # Messages that name another process.
    "not one that lost another": (end(5), [echo(4)]),
    "not one that follows, though it ended long before": (end(9), [echo(1)]),
    "the first that noticed, if no other is known": (echo(2), [echo(3)]),
    "one that names another before one that was asked": (echo(5), [asked(4)]),
    "a stall, which names the process that is behind": (echo(5, 79), [end(6)]),
    # Ends that are noticed late.
    "one that was killed, a moment after the errors of its peers": (end(6.5, 137), [end(5)]),
    "one that was evicted unasked": (end(10.3, 143), [end(10)]),
    "not one that was killed long after": (end(5), [end(9.5, 137)]),
    "one that asked for another start": (end(10.3, 75), [end(10)]),
    "not one that asked for another start long after": (end(10), [end(15, 75)]),
    "a silent machine": (lost(25), [end(5, 134)]),
    "not a pod that was lost long after": (end(5), [lost(95)]),
    # Times of whole seconds.
    "within a second the one with a code of its own": (seen(5, 134), [seen(5)]),
    "within a second one that was killed": (seen(5, 139), [seen(5)]),
    "the earlier second": (seen(5), [seen(6, 134)]),
    "within a second one that says when it failed": (end(5.25), [seen(5)]),
    "one that failed first, though it ended last": (end(5.25), [seen(8)]),
    "the first of equals": (end(5), [end(5, 3)]),
}


@pytest.mark.parametrize(("first", "others"), FIRST.values(), ids=FIRST.keys())
def test_the_end_from_which_the_others_follow(first: ProcessEnd, others: list[ProcessEnd]) -> None:
    assert first_of([first, *others], lambda each: each) is first
    if replace(first, code=1) not in [replace(each, code=1) for each in others]:
        assert first_of([*others, first], lambda each: each) is first
