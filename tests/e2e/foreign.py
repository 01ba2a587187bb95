"""A cluster that somebody brings: what the tests need in it is found there or installed, and taken away afterwards.

Variables of the environment, all optional:

    E2E_OPERATOR_IMAGE    the operator's image, if it has to be installed    tpujob-operator:VERSION
    E2E_TRAINER_IMAGE     the trainer's, with it                             tpujob-trainer:VERSION
    E2E_JAX_IMAGE         the image of examples/any-container                its test is skipped
    E2E_BUCKET            a bucket that this machine and the pods may use    an emulator in the cluster
    E2E_STORAGE_IMAGE     the emulator's image                               docker.io/fsouza/fake-gcs-server
    E2E_PROMETHEUS_URL    a Prometheus that scrapes the pods                 its part is skipped
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.surroundings import Surroundings
from tools.localcluster import product, product_images, storage
from tools.localcluster.api import Object
from tools.localcluster.client import Client
from tools.localcluster.control_plane import CommandError
from tools.localcluster.plain_http import answers
from tools.localcluster.processes import Process, free_ports

STORAGE_IMAGE = "docker.io/fsouza/fake-gcs-server:latest"
STORAGE_NAMESPACE = "tpujob-e2e"
STORAGE_HOST = f"storage.{STORAGE_NAMESPACE}"
STORAGE_PORT = 4443
OPERATOR_LABEL = "app.kubernetes.io/name=tpujob-operator"
READY_SECONDS = 120
HOW_TO_LOAD = """\
The nodes have to find the images. Build them from this checkout,
  docker build --target operator --tag {operator} . && docker build --target trainer --tag {trainer} .
and hand them to the nodes, `kind load docker-image {operator} {trainer}`, or push them to a registry and name them:
  make e2e KUBECONFIG=… E2E_OPERATOR_IMAGE=REGISTRY/{operator} E2E_TRAINER_IMAGE=REGISTRY/{trainer}"""
HOW_TO_STORE = """\
Where nodes cannot pull that image, write one and hand it to them,
  python -m tools.localcluster storage-image storage.tar      and, for example, `kind load image-archive storage.tar`
then give the name that it printed as E2E_STORAGE_IMAGE, or a real bucket as E2E_BUCKET."""
HOW_TO_INSTALL_JOBSET = "helm install jobset oci://registry.k8s.io/jobset/charts/jobset --namespace jobset-system \
--create-namespace"


class ClusterUnfit(Exception):  # noqa: N818 - a state of the cluster
    """The tests cannot be played there; the message says what to do."""


@contextmanager
def prepared(
    kubeconfig: Path, environ: Mapping[str, str], scratch: Path, announce: Callable[[str], object]
) -> Iterator[Surroundings]:
    """The surroundings in that cluster, for as long as the block runs.

    Args:
        kubeconfig: An administrator's.
        environ: With the variables above.
        scratch: A folder for logs.
        announce: Called with a line when something has been found or done.

    Raises:
        ClusterUnfit: Something is missing that is not ours to install, or that cannot be.
    """
    client = Client(kubeconfig.absolute(), prefers_installed=True)
    try:
        client.kubectl("get", "--raw=/readyz", "--request-timeout=20s")
    except CommandError as error:
        raise ClusterUnfit(f"the cluster of {kubeconfig} does not answer: {error}") from error
    if not client.kubectl("get", "crd", "jobsets.jobset.x-k8s.io", "--ignore-not-found"):
        raise ClusterUnfit(f"JobSet is not installed there; do it with\n  {HOW_TO_INSTALL_JOBSET}")
    with ExitStack() as stack:
        operator = _find_operator(client)
        if operator is None:
            operator = stack.enter_context(_installed_operator(client, environ, announce))
        container = operator["spec"]["template"]["spec"]["containers"][0]
        announce(f"operator: {container['image']} in namespace {operator['metadata']['namespace']}")
        url, bucket = None, environ.get("E2E_BUCKET", "").removeprefix("gs://").strip("/")
        if not bucket:
            image = environ.get("E2E_STORAGE_IMAGE") or STORAGE_IMAGE
            url = stack.enter_context(_storage(client, image, scratch, announce))
        yield Surroundings(
            kubeconfig=str(client.kubeconfig),
            is_own=False,
            bucket_url=url,
            bucket=bucket or storage.BUCKET,
            bucket_environment=storage.environment(f"http://{STORAGE_HOST}:{STORAGE_PORT}") if url else {},
            operator_namespace=operator["metadata"]["namespace"],
            operator_account=operator["spec"]["template"]["spec"]["serviceAccountName"],
            python_image=container["image"],
            trainer_image=_variable(container, "OPERATOR_TRAINER_IMAGE"),
            jax_image=environ.get("E2E_JAX_IMAGE") or None,
            prometheus_url=environ.get("E2E_PROMETHEUS_URL") or None,
        )


def _variable(container: Object, name: str) -> str:
    """The value that a container is given."""
    return next(str(variable["value"]) for variable in container["env"] if variable["name"] == name)


def _find_operator(client: Client) -> Object | None:
    """The operator's Deployment, wherever it is installed."""
    found = client.items("deployments", "", OPERATOR_LABEL, everywhere=True)
    return found[0] if found else None


@contextmanager
def _installed_operator(
    client: Client, environ: Mapping[str, str], announce: Callable[[str], object]
) -> Iterator[Object]:
    """The Deployment of this checkout's chart; the definition of TpuTrainingJob stays afterwards, as Helm keeps it."""
    version = product_images.product_version()
    images = {
        "image": environ.get("E2E_OPERATOR_IMAGE") or f"tpujob-operator:{version}",
        "trainerImage": environ.get("E2E_TRAINER_IMAGE") or f"tpujob-trainer:{version}",
    }
    announce(
        f"no operator is installed; installing this checkout's, with {images['image']} and {images['trainerImage']}"
    )
    try:
        product.install(client, [setting for key, image in images.items() for setting in _image_settings(key, image)])
    except CommandError as error:
        _uninstall(client)
        advice = HOW_TO_LOAD.format(operator=images["image"], trainer=images["trainerImage"])
        raise ClusterUnfit(f"the operator did not become ready: {error}\n{advice}") from error
    try:
        operator = _find_operator(client)
        if operator is None:
            raise ClusterUnfit("the chart was installed and made no Deployment that can be found")
        yield operator
    finally:
        announce("taking the operator away again")
        _uninstall(client)


def _uninstall(client: Client) -> None:
    client.run_tool("helm", "uninstall", product.RELEASE, f"--namespace={product.NAMESPACE}", "--ignore-not-found")
    client.kubectl("delete", "namespace", product.NAMESPACE, "--ignore-not-found", "--wait=false")


def _image_settings(key: str, image: str) -> list[str]:
    """The chart's values for an image, by tag or by digest."""
    name, at, digest = image.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon of a registry's port
        repository, tag = name, ""
    settings = [f"--set-string={key}.repository={repository}", f"--set-string={key}.tag={tag}"]
    return [*settings, f"--set-string={key}.digest={digest}"] if at else settings


@contextmanager
def _storage(client: Client, image: str, scratch: Path, announce: Callable[[str], object]) -> Iterator[str]:
    """The address, from here, of a storage emulator that runs in the cluster as long as the block does."""
    announce(f"no bucket is given (E2E_BUCKET): running the storage emulator {image} in namespace {STORAGE_NAMESPACE}")
    client.apply(*_storage_objects(image))
    try:
        pods = ("pod/storage", f"--namespace={STORAGE_NAMESPACE}")
        try:
            client.kubectl("wait", *pods, "--for=condition=Ready", f"--timeout={READY_SECONDS}s")
        except CommandError as error:
            raise ClusterUnfit(f"the storage emulator did not start: {error}\n{HOW_TO_STORE}") from error
        (port,) = free_ports(1)
        command: list[str | Path] = [client.program("kubectl"), "port-forward", *pods]
        command += [f"{port}:{STORAGE_PORT}", "--address=127.0.0.1"]
        scratch.mkdir(parents=True, exist_ok=True)
        forward = Process("port-forward", command, scratch / "port-forward.log", environment=client.environment)
        try:
            url = f"http://127.0.0.1:{port}"
            forward.wait_until_ready("the storage emulator", lambda: answers(f"{url}/storage/v1/b?project=test"))
            storage.EmulatedBucket(url).create()
            yield url
        finally:
            forward.stop()
    finally:
        client.kubectl("delete", "namespace", STORAGE_NAMESPACE, "--wait=false")


def _storage_objects(image: str) -> list[Object]:
    metadata = {"name": "storage", "namespace": STORAGE_NAMESPACE, "labels": {"app": "storage"}}
    public = f"{STORAGE_HOST}:{STORAGE_PORT}"
    container = {
        "name": "storage",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-scheme=http", "-backend=memory", f"-port={STORAGE_PORT}", f"-public-host={public}"],
        "ports": [{"containerPort": STORAGE_PORT}],
        "readinessProbe": {"httpGet": {"path": "/storage/v1/b?project=test", "port": STORAGE_PORT}, "periodSeconds": 1},
    }
    service = {"clusterIP": "None", "selector": {"app": "storage"}, "ports": [{"port": STORAGE_PORT}]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STORAGE_NAMESPACE}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]
