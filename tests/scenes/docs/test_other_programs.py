"""Commands of other programs in the pages: helm and kubectl know their flags; those that are not here are a list."""

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from tests.charts.rendered import NAMESPACE
from tests.docs.newcomer import ROOT, section
from tests.docs.test_pages import PAGES
from tools.localcluster import binaries, product_images
from tools.localcluster.control_plane import ControlPlane

pytestmark = pytest.mark.control_plane

PROGRAMS = ("helm", "kubectl", "gcloud", "docker", "kind", "ctr", "buildah", "skopeo", "gsutil")
GCLOUD = "cloud.google.com/sdk/gcloud/reference"
DOCKER = "docs.docker.com/reference/cli/docker"
KIND = "kind.sigs.k8s.io/docs/user/quick-start"
NOT_PLAYED = {
    ("gcloud", "artifacts", "repositories", "create"): ({"--location", "--repository-format"}, GCLOUD),
    ("gcloud", "auth", "configure-docker"): (set(), GCLOUD),
    ("gcloud", "compute", "tpus", "queued-resources", "create"): ({"--accelerator-type"}, GCLOUD),
    ("gcloud", "compute", "tpus", "tpu-vm", "create"): ({"--accelerator-type", "--version", "--zone"}, GCLOUD),
    ("gcloud", "compute", "tpus", "tpu-vm", "delete"): ({"--zone"}, GCLOUD),
    ("gcloud", "compute", "tpus", "tpu-vm", "scp"): ({"--worker", "--zone"}, GCLOUD),
    ("gcloud", "compute", "tpus", "tpu-vm", "ssh"): ({"--command", "--worker", "--zone"}, GCLOUD),
    ("gcloud", "container", "clusters", "create"): ({"--location", "--workload-pool"}, GCLOUD),
    ("gcloud", "container", "clusters", "delete"): ({"--location"}, GCLOUD),
    ("gcloud", "container", "clusters", "get-credentials"): ({"--location"}, GCLOUD),
    ("gcloud", "container", "node-pools", "create"): (
        {"--cluster", "--location", "--machine-type", "--num-nodes", "--spot", "--tpu-topology"},
        GCLOUD,
    ),
    ("gcloud", "container", "node-pools", "delete"): ({"--cluster", "--location"}, GCLOUD),
    ("gcloud", "projects", "describe"): ({"--format"}, GCLOUD),
    ("gcloud", "storage", "buckets", "add-iam-policy-binding"): ({"--member", "--role"}, GCLOUD),
    ("gcloud", "storage", "buckets", "create"): ({"--location"}, GCLOUD),
    ("gcloud", "storage", "cp"): (set(), GCLOUD),
    ("docker", "build"): ({"--build-arg", "--build-context", "--file", "--tag", "--target"}, DOCKER),
    ("docker", "pull"): (set(), DOCKER),
    ("docker", "push"): (set(), DOCKER),
    ("kind", "create", "cluster"): (set(), KIND),
    ("kind", "load", "docker-image"): (set(), KIND),
}
"""Commands that no test runs as they stand, with all flags that the pages give them, and where those are described."""
SERVER_SIDE = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")


def typed() -> Iterator[tuple[str, list[str]]]:
    """Each page's lines to type of these programs, as words; variables of the shell have a value."""
    for page in PAGES:
        blocks = re.findall(r"```(?:bash|console|sh)\n(.*?)```", page.read_text(), re.DOTALL)
        blocks += re.findall(r"(?:^ {4}.*\n?)+", page.read_text(), re.MULTILINE)
        for line in re.sub(r"\\\n\s*", " ", "\n".join(blocks)).splitlines():
            start = re.search(rf"(?:^\s*(?:until )?|\$\()({'|'.join(PROGRAMS)}) [a-z-].*", line)
            if start and "…" not in line:
                told = re.sub(r"\s(?:#|\s{2}).*|; do.*", "", start[0].strip().removeprefix("$(").removeprefix("until "))
                yield page.name, shlex.split(re.sub(r"\$\w+", "value", told.rstrip(")&; ")))


def lines(program: str) -> list[list[str]]:
    return [words for _, words in typed() if words[0] == program]


def test_all_programs_are_found() -> None:
    assert {words[0] for _, words in typed()} >= {"helm", "kubectl", "gcloud", "docker", "kind"}


@pytest.mark.parametrize("program", ["helm", "kubectl"])
def test_their_own_programs_know_the_flags(program: str) -> None:
    found = lines(program)
    assert found
    for words in found:
        tried = [str(binaries.path(program)), *words[1:], "--help"]
        done = subprocess.run(tried, capture_output=True, text=True)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"


def test_an_unknown_flag_is_noticed() -> None:
    tried = [str(binaries.path("kubectl")), "get", "ttj", "--whatch", "--help"]
    assert "unknown flag: --whatch" in subprocess.run(tried, capture_output=True, text=True).stderr


def test_what_is_not_played_is_exactly_this() -> None:
    used: dict[tuple[str, ...], set[str]] = {}
    for _, words in typed():
        if words[0] in ("helm", "kubectl", "ctr"):
            continue
        (verb,) = (known for known in NOT_PLAYED if tuple(words[: len(known)]) == known)
        flags = {word.partition("=")[0] for word in words if word.startswith("-")}
        used.setdefault(verb, set()).update(flags)
    assert used == {verb: flags for verb, (flags, _) in NOT_PLAYED.items()}


@pytest.fixture(scope="module", params=[shlex.join(words) for words in lines("helm") if words[1] == "install"])
def rendered(request: pytest.FixtureRequest) -> tuple[list[str], str]:
    """A `helm install` of a page, and what it would install."""
    words = shlex.split(request.param)
    told = ["--kube-version=1.33.0", "--api-versions=jobset.x-k8s.io/v1alpha2/JobSet"]
    done = subprocess.run(
        [binaries.path("helm"), "template", *words[2:], *told], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return words, done.stdout


def test_chart_of_a_page_names_the_images_of_the_page(rendered: tuple[list[str], str]) -> None:
    words, manifest = rendered
    registries = [word.partition("=")[2] + "/" for word in words if word.startswith("image.registry=")]
    (image,) = set(re.findall(r"image: \"?([^\s\"]*tpujob-operator:[\w.]+)", manifest))
    assert image == f"{''.join(registries)}tpujob-operator:{product_images.product_version()}"
    (trainer,) = set(re.findall(r"[^\s\"=]*tpujob-trainer:[\w.]+", manifest))
    assert trainer == image.replace("operator", "trainer")


def test_api_server_takes_the_chart_of_a_page(
    rendered: tuple[list[str], str], control_plane: ControlPlane, namespace: str
) -> None:
    # The objects name the release's namespace; for this test that is a fresh one.
    manifest = rendered[1].replace(f'namespace: "{NAMESPACE}"', f'namespace: "{namespace}"')
    # Helm makes it before the pod of `helm test`, whose account the API server looks up.
    for account in set(re.findall(r"serviceAccountName: (\S+)", manifest)):
        named = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account.strip('"')}}
        control_plane.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", named)
    said = control_plane.kubectl(*SERVER_SIDE, "-f", "-", stdin=manifest)
    assert said.count("serverside-applied") == manifest.count("\nkind: ")


def test_kind_loads_the_images_that_are_built_for_it() -> None:
    text = section("docs/install.md", "On kind")
    (registry,) = re.findall(r"make images REGISTRY=(\S+)", text)
    (loaded,) = re.findall(r"kind load docker-image (.*)", text)
    version = product_images.product_version()
    assert loaded.split() == [f"{registry}/tpujob-{part}:{version}" for part in ("operator", "trainer")]
    assert f"--set image.registry={registry}\n" in text
