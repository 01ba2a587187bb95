"""The pod network of the one-machine cluster: a bridge of its own, and the few packet rules that pods need.

The bridge's address is where pods reach what runs on the machine: the API server, the name server, the storage
emulator. Rules carry a comment and match this bridge or its addresses only.
"""

import json
import shlex
import socket
import subprocess
from pathlib import Path

from tools.localcluster.control_plane import KUBERNETES_SERVICE_IP
from tools.localcluster.undo import Journal

NETWORK = "tpujob-test"
BRIDGE = "tpujob0"
ADDRESS = "10.244.0.1"
POD_ADDRESSES = "10.244.0.0/24"
PLUGINS = Path("/usr/lib/cni")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
LINKS = Path("/sys/class/net")
LIFE_PORT = 10244
"""Of the bridge's address: where the process that holds a cluster listens for as long as it lives."""
LIFE_SECONDS = 5
COMMENT = "tpujob test cluster"
TABLES = ("filter", "nat")
"""Where packet rules are added."""


class NetworkError(Exception):
    """A command that changes the network failed."""


def make_bridge(journal: Journal, directory: Path) -> socket.socket:
    """Makes the bridge with its address, and lets packets of pods pass.

    Args:
        journal: Where the changes are noted.
        directory: Of the cluster; the bridge names it.

    Returns:
        The sign that the cluster lives; it has to stay open for as long as it does.

    Raises:
        NetworkError: There is such a bridge already, or the kernel refused.
    """
    journal.note("setting", file=str(FORWARDING), content=FORWARDING.read_text())
    FORWARDING.write_text("1")
    journal.note("link", name=BRIDGE)
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "link", "set", BRIDGE, "alias", str(directory))
    _run("ip", "address", "add", f"{ADDRESS}/{POD_ADDRESSES.partition('/')[2]}", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    sign_of_life = socket.create_server((ADDRESS, LIFE_PORT))
    # At the head of their chains: a firewall of the machine's may end them with a refusal.
    _insert_rule(journal, "filter", "INPUT", "--in-interface", BRIDGE, "--jump", "ACCEPT")
    _insert_rule(journal, "filter", "FORWARD", "--in-interface", BRIDGE, "--jump", "ACCEPT")
    _insert_rule(journal, "filter", "FORWARD", "--out-interface", BRIDGE, "--jump", "ACCEPT")
    leaving = ("--source", POD_ADDRESSES, "!", "--destination", POD_ADDRESSES)
    _insert_rule(journal, "nat", "POSTROUTING", *leaving, "--jump", "MASQUERADE")
    return sign_of_life


def abandoned() -> Path | None:
    """The directory of a cluster that ended by force and left its bridge; None where there is no bridge.

    Raises:
        NetworkError: There is a bridge, and its cluster lives.
    """
    link = LINKS / BRIDGE
    if not link.exists():
        return None
    directory = Path((link / "ifalias").read_text().strip())
    try:
        socket.create_connection((ADDRESS, LIFE_PORT), timeout=LIFE_SECONDS).close()
    except OSError:
        return directory
    raise NetworkError(
        f"the bridge {BRIDGE} exists: the cluster in {directory} runs on this machine; end it first "
        f"(python -m tools.localcluster down --dir {directory})"
    )


def remove_abandoned() -> None:
    """Removes a bridge, what is connected to it, and its packet rules, where no journal tells of them any more."""
    for port in (LINKS / BRIDGE / "brif").glob("*"):
        _run("ip", "link", "delete", port.name)
    if (LINKS / BRIDGE).exists():
        _run("ip", "link", "delete", BRIDGE)
    for table in TABLES:
        for line in _run("iptables", "--wait", "--table", table, "--list-rules").splitlines():
            add, *rule = shlex.split(line)
            if COMMENT in rule:
                _run("iptables", "--wait", "--table", table, add.replace("-A", "-D"), *rule)


def lead_to_api_server(journal: Journal, port: int) -> None:
    """Leads pods from the address that `kubernetes.default` has to the API server on the bridge."""
    where = ("--in-interface", BRIDGE, "--destination", f"{KUBERNETES_SERVICE_IP}/32", "--protocol", "tcp")
    target = ("--dport", "443", "--jump", "DNAT", "--to-destination", f"{ADDRESS}:{port}")
    _insert_rule(journal, "nat", "PREROUTING", *where, *target)


def write_plugin_configuration(folder: Path, addresses: Path) -> None:
    """Writes what containerd hands to the network plugins.

    Args:
        folder: containerd's folder of such configurations.
        addresses: Where the plugins note the addresses in use.
    """
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,  # one rule for all pods instead of a chain for each, which a crash would leave
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(addresses),
            "ranges": [[{"subnet": POD_ADDRESSES, "gateway": ADDRESS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    content = {"cniVersion": "0.4.0", "name": NETWORK, "plugins": [bridge]}
    (folder / "10-tpujob.conflist").write_text(json.dumps(content, indent=2))


def _insert_rule(journal: Journal, table: str, chain: str, *rule: str) -> None:
    commented = [*rule, "--match", "comment", "--comment", COMMENT]
    journal.note("rule", table=table, chain=chain, rule=commented)
    _run("iptables", "--wait", "--table", table, "--insert", chain, *commented)


def _run(*command: str) -> str:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        raise NetworkError(f"`{' '.join(command)}`: {result.stderr.strip()}")
    return result.stdout
