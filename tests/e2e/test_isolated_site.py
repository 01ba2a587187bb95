"""A site without a network: from the bundle alone, a workstation trains, and images are built and train.

Every command runs in a network namespace that has no route. What a person would type is read from the bundle's README.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.e2e.containers import Container, container
from tests.e2e.isolation import BUNDLE, ImageStore, build_images, make_bundle, readme_commands, run_isolated
from tools.localcluster import machine, product_images
from tpujob.bundle.checksums import sha256, verify
from tpujob.commands.from_folder import folder_to_parquet

pytestmark = [pytest.mark.e2e, pytest.mark.isolated, pytest.mark.timeout(1500)]

TEXT = Path(os.__file__).parent / "json"
STEPS = 4
MODEL = {"layers": 1, "embedDim": 32, "heads": 2}
LOOK_OUT = """
import socket
for address in ("192.0.2.1", "8.8.8.8", "10.244.0.1", "169.254.169.254"):
    try:
        socket.create_connection((address, 443), timeout=5)
    except OSError as error:
        print(error.errno)
try:
    socket.getaddrinfo("example.com", 443)
except socket.gaierror:
    print("no name")
here = socket.create_server(("127.0.0.1", 0))
socket.create_connection(here.getsockname()).close()
print("loopback")
"""
LOOK_AROUND = """
import json, os, shutil
from pathlib import Path
def refuses(place):
    try:
        Path(place, "x").write_text("x")
    except OSError as error:
        return error.errno
print(json.dumps({
    "uid": os.getuid(), "parent": os.getppid(),
    "first": Path("/proc/1/cmdline").read_text().split(chr(0))[1:3],
    "refused": [refuses(place) for place in ("/", "/opt/tpujob", "/etc")],
    "writable": [refuses(place) for place in ("/tmp", "/home/tpujob")],
    "tools": [tool for tool in ("pip", "uv", "gcc", "cc", "make", "git", "curl") if shutil.which(tool)],
    "capabilities": [line for line in Path("/proc/self/status").read_text().splitlines() if line[:6] == "CapEff"],
}))
"""


@pytest.fixture(scope="module")
def bundle(request: pytest.FixtureRequest) -> Path:
    reason = machine.why_unfit()
    if reason is not None:
        pytest.skip(f"no isolated site: {reason}")
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    announce = reporter.write_line if reporter is not None else print
    try:
        machine.prepare(announce)
        build_images(announce)
        announce(make_bundle())
    except (machine.MachineUnfit, product_images.ImagesUnavailable) as missing:
        pytest.skip(f"no isolated site: {missing}")
    return BUNDLE


@pytest.fixture(scope="module")
def workstation(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The virtual environment that the README's commands make; its programs."""
    folder = tmp_path_factory.mktemp("workstation")
    for part in ("wheels", "requirements"):
        (folder / part).symlink_to(bundle / part)
    for command in readme_commands("Install on a machine"):
        # Byte code is made when it is needed: most of what is installed is never imported here.
        result = run_isolated(*command, folder=folder, PIP_NO_COMPILE="1")
        assert result.returncode == 0, result.stderr[-2000:]
    yield folder / "tpujob-venv" / "bin"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def store(bundle: Path) -> ImageStore:
    """Images of the bundle: the base as it was carried, ours as the README builds them."""
    store = ImageStore()
    store.run("buildah", "pull", "--quiet", "docker-archive:images/tpujob-base-trixie-git.tar")
    for command in readme_commands("Build the images here"):
        if command[0] == "buildah":
            store.run(*command)
    store.prune()
    return store


@pytest.fixture(scope="module")
def trainer(store: ImageStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    image = f"localhost/tpujob-trainer:{product_images.product_version()}"
    with container(store, image, tmp_path_factory.mktemp("container")) as made:
        yield made


def test_the_place_leads_nowhere(tmp_path):
    assert run_isolated("ip", "route", folder=tmp_path).stdout == ""
    assert run_isolated("ip", "-6", "route", "show", "default", folder=tmp_path).stdout == ""
    unreachable = "101"
    looked = run_isolated("python3", "-c", LOOK_OUT, folder=tmp_path)
    assert looked.stdout.split("\n") == [*[unreachable] * 4, "no name", "loopback", ""]


def test_every_file_of_the_bundle_has_its_checksum(bundle):
    (check,) = readme_commands("Check")
    assert subprocess.run(check, cwd=bundle, capture_output=True).returncode == 0


def test_a_workstation_installs_and_trains(workstation, tmp_path):
    made = run_isolated(workstation / "tpujob", "data", "from-folder", TEXT, "data", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    job = YAML(typ="safe", pure=True).load(BUNDLE / "examples" / "quickstart.yaml")
    job["spec"]["accelerator"] = "cpu:2x1"
    job["spec"]["trainer"] |= {
        "model": MODEL,
        "data": {"path": str(tmp_path / "data" / "*.parquet"), "tokenizer": "bytes"},
        "sequenceLength": 32,
        "batchSize": 8,
        "steps": STEPS,
        "sample": {"prompt": "def ", "tokens": 8},
    }
    with (tmp_path / "job.yaml").open("w") as file:
        YAML().dump(job, file)
    ran = run_isolated(workstation / "tpujob", "run", "job.yaml", "--json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    ending = json.loads(ran.stdout.splitlines()[-1])
    assert (ending["phase"], ending["step"], ending["processes"]) == ("Succeeded", STEPS, 2)


def test_the_code_can_be_changed_there(workstation, tmp_path):
    for part in ("wheels", "source"):
        (tmp_path / part).symlink_to(BUNDLE / part)
    unpack, make = readme_commands("Change the code here")
    assert run_isolated(*unpack, folder=tmp_path).returncode == 0
    alone = run_isolated(workstation / "tpujob", "bundle", "--out", "another", folder=tmp_path)
    assert alone.returncode == 77
    assert "are made from a checkout" in alone.stderr
    source = tmp_path / make[make.index("--source") + 1]
    with (source / "trainer/src/tpujob_trainer/__init__.py").open("a") as module:
        module.write("\nSITE = 'isolated'\n")
    made = run_isolated(workstation / make[0], *make[1:], folder=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    changed = tmp_path / make[make.index("--out") + 1]
    assert verify(changed) == []
    locks = {name: (changed / "requirements" / f"own-{name}.txt").read_text() for name in ("operator", "trainer")}
    same = {name for name, lock in locks.items() if lock == (BUNDLE / "requirements" / f"own-{name}.txt").read_text()}
    assert same == {"operator"}


def test_the_image_grants_nothing(trainer):
    looked = trainer.run(["python", "-c", LOOK_AROUND])
    assert looked.returncode == 0, looked.stderr
    read_only_file_system = 30
    assert json.loads(looked.stdout) == {
        "uid": 10001,
        "parent": 1,
        "first": ["-m", "tpujob_contract.launch"],
        "refused": [read_only_file_system] * 3,
        "writable": [None] * 2,
        "tools": [],
        "capabilities": ["CapEff:\t0000000000000000"],
    }


def test_the_image_built_there_trains(trainer, tmp_path):
    folder_to_parquet(TEXT, tmp_path / "data", include=("*.py",))
    kept = tmp_path / "kept"
    kept.mkdir()
    os.chown(kept, 10001, 10001)
    config = {
        "model": MODEL,
        "data": {"path": "/data/*.parquet", "tokenizer": "bytes"},
        "sequenceLength": 32,
        "batchSize": 8,
        "steps": STEPS,
    }
    ran = trainer.run(
        mounts={tmp_path / "data": "/data", kept: "/kept"},
        TPUJOB_CONFIG=json.dumps(config),
        TPUJOB_CHECKPOINT_DIR="/kept",
        JAX_PLATFORMS="cpu",
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    (attempt,) = (kept / "attempts").glob("*.json")
    ending = json.loads(attempt.read_text())
    assert (ending["phase"], ending["step"], ending["exit_code"]) == ("finished", STEPS, 0)
    assert {file.stat().st_uid for file in kept.rglob("*")} == {10001}


def test_the_operator_s_image_starts(store, tmp_path):
    image = f"localhost/tpujob-operator:{product_images.product_version()}"
    with container(store, image, tmp_path) as operator:
        ran = operator.run()
    # Without a cluster it ends, and says what it missed.
    assert ran.returncode != 0
    assert "kube" in ran.stderr.lower(), ran.stderr[-2000:]


def link_what_is_large(source: str, target: str) -> None:
    """Copies a file; of wheels and images, which are replaced and never written to, only the name."""
    (os.link if source.endswith((".whl", ".tar")) else shutil.copyfile)(source, target)


def test_a_damaged_and_unfinished_bundle_is_mended(bundle, tmp_path):
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy, copy_function=link_what_is_large)
    (wheel,) = (copy / "wheels").glob("kopf-*.whl")
    image = copy / "images" / "tpujob-base-trixie-git.tar"
    for file in (wheel, image):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.unlink()
        file.write_bytes(content)
    missing = next((copy / "wheels").glob("absl_py-*.whl"))
    missing.unlink()
    told = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copy, capture_output=True, text=True)
    assert {line.partition(":")[0] for line in told.stdout.splitlines()} == {
        f"wheels/{wheel.name}", f"wheels/{missing.name}", "images/tpujob-base-trixie-git.tar",
    }  # fmt: skip
    (copy / "SHA256SUMS").unlink()
    said = make_bundle(copy)
    assert f"wheels/{wheel.name}: no lock file has its checksum; removed" in said
    assert verify(copy) == []
    for file in (wheel, missing, image):
        assert sha256(file) == sha256(bundle / file.relative_to(copy))
