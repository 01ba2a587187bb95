"""Machines of one network, as Cloud TPU VMs are: each a network namespace with an address and a metadata server.

The programs of a machine are those in its namespace; `ip` makes and lists them, which needs root. Nothing here is
reached from outside: the bridge between the machines has a namespace of its own.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.localcluster.waiting import wait_for

METADATA_ADDRESS = "169.254.169.254"
PREFIX = "10.83.0"
HOSTS = Path("/etc/netns")
"""Below it `ip netns exec` finds files that take the place of those in /etc."""
SERVER = """
import http.server, json, sys
attributes = json.loads(sys.argv[1])

class Metadata(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        value = attributes.get(self.path.rpartition("/")[2])
        is_right = value is not None and self.headers.get("Metadata-Flavor") == "Google"
        body = value.encode() if is_right else b""
        self.send_response(200 if is_right else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

http.server.ThreadingHTTPServer((sys.argv[2], 80), Metadata).serve_forever()
"""
LIMIT_SECONDS = 600.0


def can_be_made() -> bool:
    """Whether this machine lets the test make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"tpujob-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return False
    return subprocess.run(["ip", "netns", "delete", name], capture_output=True).returncode == 0


class TpuVms:
    """So many machines, numbered from 0, that reach one another."""

    def __init__(self, count: int, accelerator_type: str) -> None:
        """Makes them; `accelerator_type` is what their metadata say, as in v4-32."""
        self._network = f"tpujob-net-{os.getpid()}"
        self._names = [f"tpujob-vm-{os.getpid()}-{number}" for number in range(count)]
        self._servers: list[subprocess.Popen[bytes]] = []
        self._lines: list[subprocess.Popen[str]] = []
        self.addresses = [f"{PREFIX}.{number + 1}" for number in range(count)]
        self._made: list[str] = []
        try:
            self._namespace(self._network)
            _ip("-n", self._network, "link", "add", "bridge0", "type", "bridge")
            _ip("-n", self._network, "link", "set", "bridge0", "up")
            for number in range(count):
                self._machine(number, accelerator_type)
        except BaseException:
            self.close()
            raise

    def command(self, number: int, *words: str) -> list[str]:
        """What runs a program on a machine."""
        return ["ip", "netns", "exec", self._names[number], *words]

    def tpujob(self, number: int, folder: Path, *words: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        """`tpujob` on a machine, in a session of its own, as ssh makes one for each line."""
        with (folder / "output").open("w") as output:
            line = subprocess.Popen(
                self.command(number, sys.executable, "-m", "tpujob", *words),
                cwd=folder,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._lines.append(line)
        return line

    def processes(self, number: int) -> list[int]:
        """All that runs on a machine, without its metadata server."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._names[number]], capture_output=True, text=True, check=True
        )
        return [int(pid) for pid in listed.stdout.split() if int(pid) != self._servers[number].pid]

    def trainer(self, number: int) -> int:
        """The trainer on a machine."""
        for pid in self.processes(number):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"tpujob_trainer" in words and b"tpujob_contract.launch" not in words:
                    return pid
        raise AssertionError(f"no trainer on machine {number}")

    def pull_the_plug(self, number: int) -> None:
        """Ends all that runs on a machine, at once: none is told by the kernel that its parent has ended before it."""
        there = self.processes(number)
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for pid in there:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sent)
        self.wait_until_idle(number)

    def wait_until_idle(self, *numbers: int) -> None:
        """Waits until nothing runs on these machines."""
        wait_for(f"nothing on {numbers}", lambda: not any(map(self.processes, numbers)), timeout_seconds=LIMIT_SECONDS)

    def close(self) -> None:
        """Ends what is left, and takes the machines away."""
        for name in self._made:
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        programs: list[subprocess.Popen[Any]] = [*self._servers, *self._lines]
        for program in programs:
            program.wait()
        for name in self._made:
            subprocess.run(["ip", "netns", "delete", name], check=True)
            shutil.rmtree(HOSTS / name, ignore_errors=True)

    def _namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        self._made.append(name)
        _ip("-n", name, "link", "set", "lo", "up")

    def _machine(self, number: int, accelerator_type: str) -> None:
        name, address = self._names[number], self.addresses[number]
        files = HOSTS / name
        files.mkdir(parents=True)
        names = f"127.0.0.1 localhost\n{address} {os.uname().nodename}\n{METADATA_ADDRESS} metadata.google.internal\n"
        (files / "hosts").write_text(names)
        self._namespace(name)
        _ip("-n", self._network, "link", "add", f"vm{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", self._network, "link", "set", f"vm{number}", "master", "bridge0", "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "address", "add", f"{METADATA_ADDRESS}/32", "dev", "lo")
        _ip("-n", name, "link", "set", "eth0", "up")
        attributes = {
            "accelerator-type": accelerator_type,
            "agent-worker-number": str(number),
            "worker-network-endpoints": ",".join(f"host:8470:{each}" for each in self.addresses),
        }
        server = [sys.executable, "-c", SERVER, json.dumps(attributes), METADATA_ADDRESS]
        self._servers.append(subprocess.Popen(self.command(number, *server)))
        ask = f"import socket; socket.create_connection(('{METADATA_ADDRESS}', 80), 5)"
        answers = self.command(number, sys.executable, "-c", ask)
        wait_for("metadata", lambda: subprocess.run(answers, capture_output=True).returncode == 0, timeout_seconds=60.0)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
