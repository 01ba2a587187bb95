"""A bridge that a killed cluster left does not hinder the next one; that of a living cluster does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.localcluster.network import BRIDGE

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from pathlib import Path
from tools.localcluster import network
from tools.localcluster.undo import Journal, undo

folder = Path(sys.argv[1])
found = [str(network.abandoned())]
life = network.make_bridge(Journal(folder / "journal"), folder)
try:
    network.abandoned()
except network.NetworkError as error:
    found.append(str(error))
life.close()
found.append(str(network.abandoned()))
network._run("ip", "link", "add", "pod", "type", "veth", "peer", "name", "inside")
network._run("ip", "link", "set", "pod", "master", network.BRIDGE)
network.remove_abandoned()
found.append(str(network.abandoned()))
found.append([link.name for link in network.LINKS.iterdir()])
found.append([network._run("iptables", "--table", table, "--list-rules") for table in network.TABLES])
network.make_bridge(Journal(folder / "journal"), folder).close()
undo(Journal(folder / "journal"))
found.append(str(network.abandoned()))
print(json.dumps(found))
"""
# A network of its own, which has no bridge of a cluster that runs beside the test.
OWN_NETWORK = ("unshare", "--map-root-user", "--net", "--mount", "--", "sh", "-c")
PREPARED = "mount -t sysfs sysfs /sys && ip link set lo up && iptables --list-rules"


def test_remains_of_a_cluster_that_was_killed_are_removed(tmp_path: Path) -> None:
    if not all(map(shutil.which, ("ip", "iptables", "unshare"))):
        pytest.skip("no iproute2 or iptables")
    if subprocess.run([*OWN_NETWORK, PREPARED], capture_output=True).returncode != 0:
        pytest.skip("a network of its own cannot be made here")
    command = [*OWN_NETWORK, f'{PREPARED} > /dev/null && exec "$@"', "sh", sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    none, living, dead, removed, links, rules, ended = json.loads(done.stdout)
    assert (none, removed, ended) == ("None", "None", "None")
    assert f"the bridge {BRIDGE} exists: the cluster in {tmp_path} runs on this machine; end it first" in living
    assert dead == str(tmp_path)
    assert links == ["lo"]
    assert [len(table.splitlines()) for table in rules] == [3, 4]
