"""The code of a job from a commit: what git committed, whole, or refused by name."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socketserver
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.code.git_server import GitServer, commit, git
from tpujob_contract import ExitCode
from tpujob_contract.commands import INSTALL, INSTALL_COMMIT
from tpujob_contract.job_code import EMULATOR, STAMP
from tpujob_launcher.code import commit as program
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.commit import main
from tpujob_launcher.code.install import installed
from tpujob_launcher.code.patience import TIMES

FILES = {"train.py": "print('one')\n", "src/lib/model.py": "SIZE = 1\n", "src/lib/same.py": "->model.py"}
NOWHERE = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "served" / "project"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    (tmp_path / "certificates").mkdir()
    server = GitServer(tmp_path / "served", tmp_path / "certificates")
    monkeypatch.setenv("SSL_CERT_FILE", str(server.authority_file))
    yield server
    server.close()


def install_commit(repository: str, wanted: str, folder: Path) -> int:
    return program.install_commit(repository, wanted, folder, pause_seconds=0)


def files_below(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"->{path.readlink()}" if path.is_symlink() else path.read_text()
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.name != STAMP
    }


def test_server_gives_one_commit_without_its_history(project: Path, server: GitServer, tmp_path: Path) -> None:
    commit(project, {"large": os.urandom(300_000)})
    (project / "large").unlink()
    first = commit(project, FILES)
    commit(project, {"train.py": "print('two')\n"})
    assert install_commit(f"{server.address}/project/.git", first, tmp_path / "code") == 2
    assert files_below(tmp_path / "code") == FILES
    assert (tmp_path / "code/train.py").stat().st_mode & 0o777 == 0o444
    assert installed(tmp_path / "code") == first
    assert server.sent < 100_000


def test_folder_gives_the_same(project: Path, tmp_path: Path) -> None:
    first = commit(project, FILES)
    commit(project, {"train.py": "print('two')\n"})
    git(project, "gc", "--quiet")
    assert install_commit(f"file://{project}", first, tmp_path / "code") == 2
    assert files_below(tmp_path / "code") == FILES


def test_done_twice_is_fetched_once(project: Path, server: GitServer, tmp_path: Path) -> None:
    first = commit(project, FILES)
    address = f"{server.address}/project/.git"
    install_commit(address, first, tmp_path / "code")
    asked = len(server.requests)
    assert install_commit(address, first, tmp_path / "code") == 0
    assert len(server.requests) == asked


def test_another_commit_replaces_the_first(project: Path, tmp_path: Path) -> None:
    first = commit(project, FILES)
    (project / "src/lib/same.py").unlink()
    second = commit(project, {"train.py": "print('two')\n"})
    install_commit(f"file://{project}", first, tmp_path / "code")
    install_commit(f"file://{project}", second, tmp_path / "code")
    assert files_below(tmp_path / "code") == {"train.py": "print('two')\n", "src/lib/model.py": "SIZE = 1\n"}


def test_server_that_fails_is_asked_again(project: Path, server: GitServer, tmp_path: Path) -> None:
    first = commit(project, FILES)
    server.fail_next = TIMES - 1
    assert install_commit(f"{server.address}/project/.git", first, tmp_path / "code") == 2
    server.fail_next = TIMES
    with pytest.raises(OSError, match=r"project/\.git: The requested URL returned error: 503; asked 5 times"):
        install_commit(f"{server.address}/project/.git", first, tmp_path / "other")


def test_server_out_of_reach_is_no_refusal(project: Path, server: GitServer, tmp_path: Path) -> None:
    first = commit(project, FILES)
    server.close()
    said = r"project/\.git: Failed to connect to .*; asked 5 times$"
    with pytest.raises(OSError, match=rf"^{server.address}/{said}"):
        install_commit(f"{server.address}/project/.git", first, tmp_path / "code")


def test_each_attempt_connects_once(tmp_path: Path) -> None:
    connections = []

    class HangsUp(socketserver.BaseRequestHandler):
        def setup(self) -> None:
            connections.append(self.client_address)

    with socketserver.TCPServer(("127.0.0.1", 0), HangsUp) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with pytest.raises(OSError, match=r"a\.git: .*; asked 5 times$"):
            install_commit(f"https://127.0.0.1:{server.server_address[1]}/a.git", NOWHERE, tmp_path / "code")
        server.shutdown()
        thread.join()
    assert len(connections) == TIMES


def test_server_that_sends_for_ever_is_left(
    project: Path, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "LONGEST_SECONDS", -1)
    with pytest.raises(OSError, match=r"project/\.git sent for -1 s and is not done"):
        install_commit(f"{server.address}/project/.git", commit(project, FILES), tmp_path / "code")


def test_page_to_sign_in_is_refused(project: Path, server: GitServer, tmp_path: Path) -> None:
    def page(headers: dict[str, str], content: bytes) -> bytes:
        headers["Content-Type"] = "text/html"
        return b"<html>"

    server.changes = page
    with pytest.raises(CodeRefused, match=r"project/\.git is no git repository .*a page to sign in") as refusal:
        install_commit(f"{server.address}/project/.git", commit(project, FILES), tmp_path / "code")
    assert refusal.value.exit_code == ExitCode.NOT_FOUND


@pytest.mark.parametrize("place", [0, 60], ids=["its beginning", "an object"])
def test_damaged_pack_is_asked_for_again(project: Path, server: GitServer, tmp_path: Path, place: int) -> None:
    times = 1

    def damaged(headers: dict[str, str], content: bytes) -> bytes:
        nonlocal times
        start = content.find(b"PACK")
        if start < 0 or not times:
            return content
        times -= 1
        start += place
        return content[:start] + bytes([content[start] ^ 0xFF]) + content[start + 1 :]

    server.changes = damaged
    first = commit(project, FILES)
    assert install_commit(f"{server.address}/project/.git", first, tmp_path / "code") == 2
    assert files_below(tmp_path / "code") == FILES
    times = TIMES
    with pytest.raises(OSError, match="asked 5 times"):
        install_commit(f"{server.address}/project/.git", first, tmp_path / "other")


def test_unknown_certificate_is_not_trusted(
    project: Path, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = commit(project, FILES)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(OSError, match="server certificate verification failed"):
        install_commit(f"{server.address}/project/.git", first, tmp_path / "code")


@pytest.mark.parametrize("kind", ["server", "folder"])
@pytest.mark.parametrize(
    ("path", "wanted", "words"),
    [
        ("project/.git", NOWHERE, rf"^spec\.code\.commit: .*{NOWHERE}"),
        ("elsewhere", None, r"^spec\.code\.repository: .*elsewhere is no git repository"),
    ],
    ids=["no such commit", "no such repository"],
)
def test_what_is_not_there_is_refused(
    project: Path, server: GitServer, tmp_path: Path, kind: str, path: str, wanted: str | None, words: str
) -> None:
    first = commit(project, FILES)
    root = server.address if kind == "server" else f"file://{project.parent}"
    with pytest.raises(CodeRefused, match=words) as refusal:
        install_commit(f"{root}/{path}", wanted or first, tmp_path / "code")
    assert refusal.value.exit_code == ExitCode.NOT_FOUND
    assert not list((tmp_path / "code").iterdir())


def test_private_repository_names_the_way_out(project: Path, server: GitServer, tmp_path: Path) -> None:
    with pytest.raises(CodeRefused, match=r"is private, or is not there; .* `tpujob submit --code \. --commit REV`"):
        install_commit(f"{server.address}/private/project", NOWHERE, tmp_path / "code")


def test_server_that_sends_another_commit_is_found_out(project: Path, server: GitServer, tmp_path: Path) -> None:
    first = commit(project, FILES)
    server.instead = (first, commit(project, {"train.py": "print('evil')\n"}))
    with pytest.raises(CodeRefused, match=rf"does not give the files of commit {first} .*tampered with"):
        install_commit(f"{server.address}/project/.git", first, tmp_path / "code")
    assert not list((tmp_path / "code").iterdir())


@pytest.mark.parametrize("what", ["HEAD", "HEAD^{tree}", "HEAD:train.py"], ids=["commit", "folder", "file"])
def test_one_changed_object_is_refused(project: Path, tmp_path: Path, what: str) -> None:
    first = commit(project, {"train.py": "print('one')\n"})
    changed = git(project, "rev-parse", what)
    file = project / ".git/objects" / changed[:2] / changed[2:]
    content = zlib.decompress(file.read_bytes())
    header, body = content.split(b"\0", 1)
    body = body.replace(b"one", b"two") if b"one" in body else body.replace(b"100644", b"100755").replace(b"a@", b"b@")
    file.chmod(0o644)
    file.write_bytes(zlib.compress(header + b"\0" + body))
    with pytest.raises(CodeRefused, match=rf"does not give .*{changed}.*tampered with"):
        install_commit(f"file://{project}", first, tmp_path / "code")
    assert not list((tmp_path / "code").iterdir())


def hand_made(project: Path, *entries: tuple[str, str, bytes]) -> str:
    """A commit whose root folder has these entries (mode, name, content), whatever git thinks of them."""
    raw = b""
    for mode, name, content in entries:
        blob = NOWHERE if mode == "160000" else git(project, "hash-object", "-w", "--stdin", given=content)
        raw += f"{mode} {name}\0".encode() + bytes.fromhex(blob)
    made = git(project, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", given=raw)
    return git(project, "commit-tree", made, "-m", "made")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        pytest.param(("100644", "..", b""), "invalid path '..'", id="path that climbs"),
        pytest.param(("100644", "../evil.py", b""), "invalid path '../evil.py'", id="path that climbs in one name"),
        pytest.param(("100644", ".git", b""), "invalid path '.git'", id="git's own name"),
        pytest.param(
            ("120000", "link", b"../secret"),
            "'link' is a link to '../secret', which is out of the folder",
            id="link out",
        ),
        pytest.param(("120000", "link", b"/etc/passwd"), "is a link to '/etc/passwd'", id="absolute link"),
        pytest.param(("160000", "other", b""), r"'other' is a repository of its own \(a submodule\)", id="submodule"),
        pytest.param(("100644", STAMP, b""), "is the name of a file that is written here", id="our own name"),
    ],
)
def test_hostile_entries_are_refused(project: Path, tmp_path: Path, entry: tuple[str, str, bytes], words: str) -> None:
    commit(project, FILES)
    with pytest.raises(CodeRefused, match=rf"^spec\.code\.repository: .*{words}") as refusal:
        install_commit(f"file://{project}", hand_made(project, entry), tmp_path / "outer" / "code")
    assert refusal.value.exit_code == ExitCode.CONFIGURATION
    assert installed(tmp_path / "outer" / "code") is None
    assert [path.name for path in (tmp_path / "outer").iterdir()] == ["code"]


def test_tag_is_no_commit(project: Path, tmp_path: Path) -> None:
    commit(project, FILES)
    git(project, "tag", "--annotate", "v1", "--message", "one")
    with pytest.raises(CodeRefused, match=r"is a tag, not a commit; take what `git rev-parse"):
        install_commit(f"file://{project}", git(project, "rev-parse", "v1"), tmp_path / "code")


def test_too_much_is_refused(project: Path, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(project, {"noise": os.urandom(10_000), "other": ""})
    monkeypatch.setattr(program, "MAX_ARCHIVE_BYTES", 5_000)
    with pytest.raises(CodeRefused, match=r"project/\.git has more than 0 MiB packed"):
        install_commit(f"{server.address}/project/.git", first, tmp_path / "code")
    monkeypatch.setattr(program, "MAX_ARCHIVE_BYTES", 50_000)
    monkeypatch.setattr(program, "MAX_UNPACKED_BYTES", 5_000)
    with pytest.raises(CodeRefused, match="the commit holds more than 0 MiB"):
        install_commit(f"file://{project}", first, tmp_path / "code")
    monkeypatch.setattr(program, "MAX_FILES", 1)
    monkeypatch.setattr(program, "MAX_UNPACKED_BYTES", 50_000)
    with pytest.raises(CodeRefused, match="the commit has more than 1 entries"):
        install_commit(f"file://{project}", first, tmp_path / "code")


def test_object_that_becomes_much_in_memory_is_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes that change a long file need the file before and after."""
    first = bytes(16 << 20)
    commit(project, {"long": first})
    second = commit(project, {"long": first + b"x", "longer": first + b"y"})
    git(project, "gc", "--quiet")
    monkeypatch.setattr(program, "MEMORY_BYTES", 32 << 20)
    with pytest.raises(CodeRefused, match=r"becomes more than 500 MiB in memory .*; keep data in the bucket"):
        install_commit(f"file://{project}", second, tmp_path / "code")


def test_attributes_change_nothing(project: Path, tmp_path: Path) -> None:
    files = {
        ".gitattributes": "kept export-ignore\nid export-subst ident\nlines text eol=crlf\n",
        "kept": "1",
        "id": "$Format:%H$ $Id$",
        "lines": "1\n2\n",
    }
    install_commit(f"file://{project}", commit(project, files), tmp_path / "code")
    assert files_below(tmp_path / "code") == files


def test_configuration_of_the_machine_is_not_read(
    project: Path, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = commit(project, FILES)
    settings = tmp_path / "config"
    settings.write_text(f'[url "file://{tmp_path}/elsewhere"]\n    insteadOf = {server.address}\n')
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG"):
        monkeypatch.setenv(name, str(settings))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "ssh")
    assert install_commit(f"{server.address}/project/.git", first, tmp_path / "code") == 2


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/a.git", "ext::touch made", "ssh://127.0.0.1/a.git"])
def test_other_protocols_are_not_spoken(tmp_path: Path, address: str) -> None:
    with pytest.raises(OSError, match=r"transport '[a-z]+' not allowed"):
        install_commit(address, NOWHERE, tmp_path / "code")


def test_memory_of_the_caller_is_not_that_of_git(project: Path, tmp_path: Path) -> None:
    first = commit(project, FILES)
    with contextlib.closing(mmap.mmap(-1, 2 * program.MEMORY_BYTES)):
        install_commit(f"file://{project}", first, tmp_path / "code")
    assert files_below(tmp_path / "code") == FILES


def test_missing_git_is_named(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(project, FILES)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CodeRefused, match=r"fetched by the program git, which is not installed here") as refusal:
        install_commit(f"file://{project}", first, tmp_path / "code")
    assert refusal.value.exit_code == ExitCode.NOT_FOUND


def test_command_leaves_with_the_code_of_the_refusal(project: Path, tmp_path: Path) -> None:
    first = commit(project, FILES)

    folder = str(tmp_path / "code")
    done = subprocess.run(
        [sys.executable, *INSTALL_COMMIT[1:], f"file://{project}", first, folder],
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"tpujob code: 2 files of file://{project}, commit {first[:12]}, in {folder}\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert main([f"file://{project}", NOWHERE, folder]) == ExitCode.NOT_FOUND
    assert main(["file:///nowhere", first, folder]) == ExitCode.NOT_FOUND


def test_server_that_is_away_longer_is_waited_for_at_a_restart(
    project: Path, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    asked_for = [f"{server.address}/project/.git", commit(project, FILES), str(tmp_path / "code")]
    server.fail_next = TIMES + 2
    assert main(asked_for) == 1
    server.fail_next = TIMES + 2
    monkeypatch.setenv("TPUJOB_ATTEMPT", "3")
    assert main(asked_for) == 0


@pytest.mark.parametrize("command", [INSTALL_COMMIT, INSTALL], ids=["commit", "archive"])
def test_command_ends_when_it_is_asked_to(tmp_path: Path, command: tuple[str, ...]) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        server.socket.settimeout(60)
        address = f"127.0.0.1:{server.server_address[1]}"
        what = (
            [f"https://{address}/a.git", NOWHERE] if command is INSTALL_COMMIT else ["gs://bucket/a.tar.gz", "0" * 64]
        )
        process = subprocess.Popen(
            [sys.executable, *command[1:], *what, str(tmp_path / "code")],
            env=os.environ | {EMULATOR: f"http://{address}"},
        )
        # It has asked, and waits for an answer that does not come.
        connection, _ = server.get_request()
        with connection:
            process.terminate()
            assert process.wait(timeout=60) == 128 + signal.SIGTERM
