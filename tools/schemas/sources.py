"""The sources of the definitions: Go modules, by version and content hash."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.localcluster.toolchain import ToolBuildError, find_go


@dataclass(frozen=True)
class Module:
    """A version of a Go module."""

    path: str
    version: str
    content: str
    """Its hash, as in go.sum."""


KUBERNETES = {
    "1.31": Module("k8s.io/kubernetes", "v1.31.14", "h1:UtjLfqvXLuSVDdJ4+NpQCIfFkKkLnAAVmxAEMsnkhjk="),
    "1.33": Module("k8s.io/kubernetes", "v1.33.13", "h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ="),
    "1.37": Module("k8s.io/kubernetes", "v1.37.2", "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="),
}
"""The oldest that the chart supports, the local cluster's, and one between them."""
PROMETHEUS_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
)
OPENAPI = Path("api") / "openapi-spec" / "swagger.json"
MONITORING_DEFINITIONS = Path("example") / "prometheus-operator-crd"


def downloaded(module: Module) -> Path:
    """The folder of a module's files.

    Raises:
        ToolsUnavailable: There is no Go, or no network.
        ToolBuildError: The content does not match the hash.
    """
    with tempfile.TemporaryDirectory() as scratch:
        command = ["mod", "download", "-json", f"{module.path}@{module.version}"]
        found = json.loads(find_go().run(command, directory=Path(scratch)))
    if found["Sum"] != module.content:
        raise ToolBuildError(f"{module.path} {module.version} has the content {found['Sum']}, not {module.content}")
    return Path(found["Dir"])
