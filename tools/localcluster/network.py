"""The pod network of the one-machine cluster: its own bridge, and the few packet rules that pods need.

At the bridge's address, pods reach the servers on the machine: the API server, the name server, the storage emulator.
Rules have a comment, and match only this bridge or its addresses.
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
"""On the bridge's address: the process that holds a cluster listens on it as long as it runs."""
LIFE_SECONDS = 5
COMMENT = "tpujob test cluster"
TABLES = ("filter", "nat")
"""The tables to which packet rules are added."""


class NetworkError(Exception):
    """A command that changes the network failed."""


def make_bridge(journal: Journal, directory: Path) -> socket.socket:
    """Creates the bridge with its address, and lets the packets of pods pass.

    Args:
        journal: Records the changes.
        directory: Of the cluster; stored as the alias of the bridge.

    Returns:
        A listener that shows that the cluster runs; it must stay open as long as it does.

    Raises:
        NetworkError: The bridge already exists, or the kernel refused.
    """
    journal.note("setting", file=str(FORWARDING), content=FORWARDING.read_text())
    FORWARDING.write_text("1")
    journal.note("link", name=BRIDGE)
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "link", "set", BRIDGE, "alias", str(directory))
    _run("ip", "address", "add", f"{ADDRESS}/{POD_ADDRESSES.partition('/')[2]}", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    sign_of_life = socket.create_server((ADDRESS, LIFE_PORT))
    # At the head of their chains: a firewall on the machine may end the chains with a rule that rejects all packets.
    _insert_rule(journal, "filter", "INPUT", "--in-interface", BRIDGE, "--jump", "ACCEPT")
    _insert_rule(journal, "filter", "FORWARD", "--in-interface", BRIDGE, "--jump", "ACCEPT")
    _insert_rule(journal, "filter", "FORWARD", "--out-interface", BRIDGE, "--jump", "ACCEPT")
    leaving = ("--source", POD_ADDRESSES, "!", "--destination", POD_ADDRESSES)
    _insert_rule(journal, "nat", "POSTROUTING", *leaving, "--jump", "MASQUERADE")
    return sign_of_life


def abandoned() -> Path | None:
    """The directory of a cluster that was killed and left its bridge; None: there is no bridge.

    Raises:
        NetworkError: There is a bridge, and its cluster runs.
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
    """Removes the bridge, the links attached to it, and our packet rules, without the help of a journal."""
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
    """Redirects the pods' traffic for the address of `kubernetes.default` to the API server on the bridge."""
    where = ("--in-interface", BRIDGE, "--destination", f"{KUBERNETES_SERVICE_IP}/32", "--protocol", "tcp")
    target = ("--dport", "443", "--jump", "DNAT", "--to-destination", f"{ADDRESS}:{port}")
    _insert_rule(journal, "nat", "PREROUTING", *where, *target)


def write_plugin_configuration(folder: Path, addresses: Path) -> None:
    """Writes the CNI configuration, which containerd passes to the network plugins.

    Args:
        folder: containerd's folder of CNI configurations.
        addresses: The plugins' folder of the addresses in use.
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
