"""Our operator on the one-machine cluster, installed by our chart with images built from this checkout."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tools.localcluster import product_images
from tools.localcluster.client import Client
from tools.localcluster.node_images import NodeImages

CHART = Path(__file__).parents[2] / "charts" / "tpujob-operator"
RELEASE = "tpujob"
NAMESPACE = "tpujob-system"
INSTALL_SECONDS = 120


def deploy(images: NodeImages, client: Client, announce: Callable[[str], object]) -> None:
    """Builds and imports what is not current, and installs or upgrades the operator; returns when it is ready."""
    identities = {}
    for key, image in product_images.IMAGES.items():
        identities[key] = product_images.build(key, announce)
        images.add(image.name, identities[key], partial(product_images.write_archive, key, identities[key]))
    announce("the node has the product's images")
    settings = (
        # Images are on the node already; a pull would ask a registry that does not have them.
        "--set=image.pullPolicy=IfNotPresent",
        # The tag stays the same when the code changes: this makes a new pod of it.
        f"--set=podAnnotations.image={identities['operator'].removeprefix('sha256:')[:16]}",
    )
    install(client, settings)
    announce("the operator is installed")


def install(client: Client, settings: Sequence[str]) -> None:
    """Installs or upgrades the operator by our chart with these settings; returns when it is ready.

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
        # Nodes have the images; one operator, since scenes end its pod and wait for the next.
        "--set=image.preloaded=true,replicas=1",
        f"--timeout={INSTALL_SECONDS}s",
        *settings,
    )
