"""What counts as left behind by a cluster."""

import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tools.localcluster.traces import traces

OWN_NETWORK = ("unshare", "--map-root-user", "--net", "--")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_network_of_somebody_else_is_no_trace(tmp_path: Path) -> None:
    if not all(map(shutil.which, ("iptables", "unshare"))):
        pytest.skip("no util-linux or iptables")
    if subprocess.run([*OWN_NETWORK, "true"], capture_output=True).returncode != 0:
        pytest.skip("a network of its own cannot be made here")
    with subprocess.Popen(
        [*OWN_NETWORK, "sh", "-c", "echo there; read end"], stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        its_network = str(Path(f"/proc/{process.pid}/ns/net").stat().st_ino)
        found = traces(tmp_path)["network namespaces"]
        process.communicate("end\n")
    assert not [each for each in found if its_network in each]
