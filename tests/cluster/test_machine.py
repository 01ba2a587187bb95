"""Whether a node can run here is found out without harm, and said in words."""

import sys
from pathlib import Path

import pytest

from tests.cluster import machine, permissions


def refuse() -> None:
    raise permissions.Refused("Operation not permitted")


@pytest.mark.parametrize(
    ("platform", "user", "packages", "attempts", "words"),
    [
        ("darwin", 0, {}, {}, "needs Linux, this is darwin"),
        ("linux", 1000, {}, {}, "needs root"),
        ("linux", 0, {"runc": "/nowhere/runc"}, {}, "apt-get install --yes --no-install-recommends runc"),
        ("linux", 0, {}, {"mounting an overlay": refuse}, "mounting an overlay (Operation not permitted)"),
        ("linux", 0, {}, {"room": lambda: None}, None),
    ],
    ids=["another system", "not root", "a package is missing", "a mount is refused", "fit"],
)
def test_reason_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, platform: str, user: int, packages: dict, attempts: dict, words: str | None
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr(machine, "PACKAGES", packages)
    monkeypatch.setattr(permissions, "ATTEMPTS", attempts)

    reason = machine.why_not_now()

    assert (reason is None) if words is None else words in str(reason)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc/mounts")
def test_looking_for_permissions_leaves_nothing() -> None:
    links, mounts = set(Path("/sys/class/net").iterdir()), Path("/proc/mounts").read_text()

    permissions.refusals()

    assert not {link for link in Path("/sys/class/net").iterdir() if link.name.startswith("tpj")} - links
    assert "probe-" not in Path("/proc/mounts").read_text().removeprefix(mounts)
