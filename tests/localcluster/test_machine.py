"""Whether a node can run here is found out without harm, and said in words."""

import functools
import os
import sys
from pathlib import Path

import pytest

from tools.localcluster import machine, permissions


def refuse() -> None:
    raise permissions.Refused("Operation not permitted")


@pytest.mark.parametrize(
    ("platform", "user", "packages", "attempts", "words"),
    [
        ("darwin", 0, {}, {}, "needs Linux, this is darwin"),
        ("linux", 1000, {}, {}, "needs root"),
        ("linux", 0, {"runc": "/nowhere/runc"}, {}, "needs the programs of the Debian packages runc"),
        ("linux", 0, {}, {"mounting an overlay": refuse}, "mounting an overlay (Operation not permitted)"),
        ("linux", 0, {}, {"room": lambda: None}, None),
    ],
    ids=["another system", "not root", "a package is missing that nothing installs", "a mount is refused", "fit"],
)
def test_reason_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, platform: str, user: int, packages: dict, attempts: dict, words: str | None
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr(machine, "PACKAGES", packages)
    monkeypatch.setattr(permissions, "ATTEMPTS", attempts)
    monkeypatch.setattr("shutil.which", lambda name: None)

    reason = machine.why_unfit()

    assert (reason is None) if words is None else words in str(reason)


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of programs of a machine that lacks iptables, and whose apt-get installs it."""
    program = tmp_path / "iptables"
    installer = tmp_path / "apt-get"
    installer.write_text(
        f"#!/bin/sh\n[ $1 = update ] || {{ printf '#!/bin/sh\\nexit $REFUSED\\n' > {program}; chmod +x {program}; }}\n"
    )
    installer.chmod(0o755)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(machine, "PACKAGES", {"iptables": str(program)})
    attempt = functools.partial(permissions.attempt_command, str(program))
    monkeypatch.setattr(permissions, "ATTEMPTS", {"changing packet rules": attempt})
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("REFUSED", "0")
    return program


def test_missing_program_is_installed_before_it_is_tried(bare_machine: Path) -> None:
    said: list[str] = []

    machine.prepare(said.append)

    assert said == ["installing iptables"]
    assert bare_machine.exists()


def test_refusal_shows_after_installing(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUSED", "1")

    with pytest.raises(machine.MachineUnfit, match=r"changing packet rules \(.*iptables failed\)"):
        machine.prepare(lambda _: None)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc/mounts")
def test_looking_for_permissions_leaves_nothing() -> None:
    links, mounts = set(Path("/sys/class/net").iterdir()), Path("/proc/mounts").read_text()

    permissions.refusals()

    assert not {link for link in Path("/sys/class/net").iterdir() if link.name.startswith("tpj")} - links
    assert "probe-" not in Path("/proc/mounts").read_text().removeprefix(mounts)
