"""Our operator on the one-machine cluster, installed by our chart with images built from this checkout."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.cluster import product_images
from tests.cluster.client import Client
from tests.cluster.node_images import NodeImages

CHART = Path(__file__).parents[2] / "charts" / "tpujob-operator"
RELEASE = "tpujob"
NAMESPACE = "tpujob-system"
INSTALL_SECONDS = 120


def deploy(images: NodeImages, client: Client, announce: Callable[[str], object]) -> None:
    """Builds and imports what is not current, and installs or upgrades the operator; returns when it is ready."""
    identities = {}
    for target in product_images.TARGETS:
        identities[target] = product_images.build(target, announce)
        images.add(product_images.image_name(target), identities[target], partial(product_images.write_archive, target))
    announce("the node has the product's images")
    client.run_tool(
        "helm",
        "upgrade",
        "--install",
        RELEASE,
        CHART,
        f"--namespace={NAMESPACE}",
        "--create-namespace",
        "--wait",
        f"--timeout={INSTALL_SECONDS}s",
        # Images are on the node already; a pull would ask a registry that does not have them.
        "--set=image.pullPolicy=IfNotPresent",
        # The tag stays the same when the code changes: this makes a new pod of it.
        f"--set=podAnnotations.image={identities['operator'].removeprefix('sha256:')[:16]}",
    )
    announce("the operator is installed")
