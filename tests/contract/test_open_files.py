"""How many connections process 0 may have."""

import resource

import pytest

from tpujob_contract.connections import open_files


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [(64, 300, 276), (276, 276, None), (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None), (275, -1, 276)],
    ids=["raised", "enough", "no limit", "no hard limit"],
)
def test_open_files_are_allowed(monkeypatch, soft, hard, raised):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, given: limits.append(given))
    open_files.allow(10, each=2)
    assert limits == ([(raised, hard)] if raised else [])


def test_too_few_open_files_are_an_error_that_says_what_to_raise(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 275))
    with pytest.raises(open_files.TooFewFiles) as caught:
        open_files.allow(10, each=2)
    assert "276 open files for 10 processes" in str(caught.value)
    assert "(ulimit -Hn) is 275; raise LimitNOFILE of the container runtime" in str(caught.value)
