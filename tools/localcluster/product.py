"""Our operator on the one-machine cluster, installed by our chart with images built from this checkout."""

import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ruamel.yaml import YAML

from tools.localcluster import binaries, product_images
from tools.localcluster.api import Object
from tools.localcluster.client import Client
from tools.localcluster.node_images import NodeImages

CHART = Path(__file__).parents[2] / "charts" / "tpujob-operator"
RULES = CHART / "rules" / "tpujob.yaml"
RELEASE = "tpujob"
NAMESPACE = "tpujob-system"
INSTALL_SECONDS = 120


def deploy(images: NodeImages, client: Client, announce: Callable[[str], object]) -> None:
    """Builds and imports outdated images, and installs or upgrades the operator; returns when it is ready."""
    identities = {}
    for key, image in product_images.IMAGES.items():
        identities[key] = product_images.build(key, announce)
        images.add(image.name, identities[key], partial(product_images.write_archive, key, identities[key]))
    announce("the node has the product's images")
    settings = (
        # The images are on the node; a pull would request them from a registry that does not have them.
        "--set=image.pullPolicy=IfNotPresent",
        # The tag does not change with the code: this replaces the pod. A string, even if it looks like 12e4….
        f"--set-string=podAnnotations.image={identities['operator'].removeprefix('sha256:')[:16]}",
    )
    install(client, settings)
    announce("the operator is installed")


def pod_monitors() -> list[Object]:
    """The chart's PodMonitors as Helm renders them for this release."""
    options = ("--set=image.preloaded=true,metrics.podMonitor.enabled=true", "--kube-version=1.37.0")
    command: list[str | Path] = [
        binaries.path("helm"),
        "template",
        RELEASE,
        CHART,
        f"--namespace={NAMESPACE}",
        "--show-only=templates/podmonitor.yaml",
        *options,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(YAML(typ="safe").load_all(result.stdout))


def install(client: Client, settings: Sequence[str]) -> None:
    """Installs or upgrades the operator with our chart and the given settings; returns when it is ready.

    Args:
        client: Of the cluster.
        settings: Options of Helm.

    Raises:
        CommandError: It did not become ready.
    """
    client.run_tool(
        "helm",
        "upgrade",
        "--install",
        RELEASE,
        CHART,
        f"--namespace={NAMESPACE}",
        "--create-namespace",
        "--wait",
        # Nodes have the images; a single replica, because tests delete its pod and wait for the next.
        "--set=image.preloaded=true,replicas=1",
        f"--timeout={INSTALL_SECONDS}s",
        *settings,
    )
