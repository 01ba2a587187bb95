"""Which processes of a job `tpujob run` starts on which machine, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.fakes import Exchange, HttpServer
from tests.operator.manifests import container_manifest, manifest
from tpujob.job.job_file import local_job, read_document, read_job
from tpujob.local.placement import HERE, HostOptions, PlacedJob, Placement, place
from tpujob.local.plan import plan_processes
from tpujob.local.run import run_job, without_secret
from tpujob.local.tpu_machine import Metadata, TpuMachine, TpuVm, look, read_vm
from tpujob.output.errors import CommandError
from tpujob_contract import environment as names
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.warnings import rehearsal_warnings

V5E_16 = TpuVm("v5litepod-16", 2, ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"))
V5E_8 = TpuVm("v5litepod-8", 0, ("10.0.0.1",))
HOST_OF_16 = TpuMachine(4, "v5e", V5E_16)
HOST_OF_8 = TpuMachine(8, "v5e", V5E_8)
HOST_OF_V2 = TpuMachine(8, None, TpuVm("v2-8", 0, ("a",)))
FOUR, EIGHT = TpuMachine(4, "v5e"), TpuMachine(8, "v5e")
"""Chips of which no metadata tell more."""
NO_TPU = TpuMachine()


def job(accelerator: str, **spec: Any) -> TpuTrainingJob:
    if "workers" in spec:
        block = {
            "task": "extract",
            "model": {"preset": "tiny"},
            "extract": {"layers": ["0"]},
            "data": {"path": "gs://bucket/texts"},
        }
        spec = {"trainer": block, "checkpointDir": "gs://bucket/run", **spec}
    return load_job(manifest(accelerator=accelerator, **spec))


@pytest.mark.parametrize(
    ("wanted", "options", "machine", "found"),
    [
        pytest.param("v5e-16", HostOptions(), NO_TPU, HERE, id="rehearsed where there is no TPU"),
        pytest.param("cpu:2x1", HostOptions(), HOST_OF_8, HERE, id="a job on CPU devices, beside a TPU"),
        pytest.param("v5e-8", HostOptions(cpu=True), HOST_OF_8, HERE, id="rehearsed beside a TPU"),
        pytest.param("v5e-8", HostOptions(), HOST_OF_8, Placement(on_chips=True), id="one host, by its chips"),
        pytest.param(
            "v5e-8", HostOptions(), EIGHT, Placement(on_chips=True), id="one host without metadata"
        ),
        pytest.param(
            "v5litepod-16", HostOptions(), HOST_OF_16,
            Placement(on_chips=True, host=2, coordinator="10.0.0.1:8476"), id="a host of four, by the metadata",
        ),
        pytest.param(
            "v5e-16", HostOptions("a:99,b,c,d", 1), FOUR,
            Placement(on_chips=True, host=1, coordinator="a:99"), id="a host of four, by hand",
        ),
        pytest.param(
            "v5e-16", HostOptions("auto", cpu=True), TpuMachine(0, None, V5E_16),
            Placement(host=2, coordinator="10.0.0.1:8476"), id="several machines rehearse a slice",
        ),
        pytest.param(
            "cpu:2x1", HostOptions("a,b", 1), NO_TPU, Placement(host=1, coordinator="a:8476"), id="two machines' CPUs"
        ),
    ],
)  # fmt: skip
def test_machine_runs_its_share(wanted: str, options: HostOptions, machine: TpuMachine, found: Placement) -> None:
    assert place(job(wanted), options, machine) == found


def test_worker_needs_its_number_alone() -> None:
    wanted = job("v5e-8", workers=32)
    assert place(wanted, HostOptions(host=31), HOST_OF_8) == Placement(on_chips=True, host=31)
    assert place(wanted, HostOptions(host=31), NO_TPU) == Placement(host=31)
    assert place(wanted, HostOptions(), NO_TPU) == HERE


@pytest.mark.parametrize(
    ("wanted", "spec", "options", "machine", "said"),
    [
        ("v5e-4", {}, HostOptions(), HOST_OF_8, "v5e-4 is asked for, and this machine is of a v5litepod-8"),
        ("v5e-4", {}, HostOptions(), HOST_OF_8, "write `accelerator: v5litepod-8`, or pass --cpu"),
        ("v5e-4", {}, HostOptions(), EIGHT, "a host of v5e-4 has 4 chips of v5e, and this machine has 8 of v5e"),
        ("v6e-8", {}, HostOptions(), EIGHT, "a host of v6e-8 has 8 chips of v6e, and this machine has 8 of v5e"),
        ("v5e-8", {}, HostOptions(), HOST_OF_V2, "this machine is a v2-8, which tpujob does not know"),
        ("v5e-16", {}, HostOptions(), FOUR, "--hosts: v5e-16 has 4 hosts, whose addresses this machine's"),
        ("v5e-16", {}, HostOptions(), FOUR, "pass --hosts A,B,… and --host I, or --cpu to rehearse here"),
        ("v5e-16", {"slices": 2}, HostOptions(), HOST_OF_16, "spec.slices: 2 slices are joined on a cluster only"),
        ("v5e-16", {}, HostOptions("a,b"), FOUR, "--host: is missing; it is the number of this machine"),
        ("v5e-16", {}, HostOptions("a,b", 0), FOUR, "--hosts: a,b are 2; v5e-16 with 1 slice has 4"),
        ("v5e-16", {}, HostOptions("a,,b,c", 0), FOUR, "--hosts: a,,b,c are 4; v5e-16"),
        ("v5e-16", {}, HostOptions("a,b,c,d", 4), FOUR, "--host: 4 is none of 0 to 3"),
        ("cpu:2x1", {}, HostOptions(host=1), NO_TPU, "--host: 1 needs --hosts, the addresses of all machines"),
        ("cpu:2x1", {}, HostOptions("auto"), NO_TPU, "--hosts: auto: the metadata of this machine name no TPU slice"),
        ("v5e-8", {"workers": 2}, HostOptions("a,b", 0), HOST_OF_8, "--hosts: independent workers (spec.workers)"),
        ("v5e-8", {"workers": 2}, HostOptions(), HOST_OF_8, "--host: is missing; this machine runs one of 2 workers"),
        ("v5e-8", {"workers": 2}, HostOptions(host=2), HOST_OF_8, "--host: 2 is none of 0 to 1 (spec.workers: 2)"),
    ],
)  # fmt: skip
def test_wrong_machine_or_option_is_refused(
    wanted: str, spec: dict[str, Any], options: HostOptions, machine: TpuMachine, said: str
) -> None:
    with pytest.raises(CommandError) as refused:
        place(job(wanted, **spec), options, machine)
    assert said in str(refused.value)


def test_folder_of_this_machine_is_no_volume_and_needs_none_here(tmp_path: Path) -> None:
    """In pods the same job loses its checkpoints; a rehearsal says so."""
    file = tmp_path / "job.yaml"
    YAML().dump(manifest(accelerator="v5e-8", checkpointDir="/mnt/disk/run"), file)
    wanted = local_job(read_document(file), file)
    assert wanted.spec.checkpoint_dir == "/mnt/disk/run"
    lost = "is on no volume, and would be lost with the pod"
    assert [each for each in rehearsal_warnings(wanted) if lost in each]
    with pytest.raises(CommandError, match=lost):
        read_job(file)


def test_process_on_chips_gets_no_cpu_devices_and_keeps_the_machines_own_variables(tmp_path: Path) -> None:
    inherited = {
        "PATH": "/bin",
        "TPU_WORKER_ID": "2",
        "JAX_PLATFORMS": "cpu",
        "TPUJOB_SLICE": "9",
        "MEGASCALE_PORT": "1",
    }
    wanted = job("v5e-16", checkpointDir="gs://bucket/run")
    [process] = plan_processes(
        build_jobset(wanted, JobSettings()),
        inherited=inherited,
        directory=tmp_path,
        checkpoint_dir="unused",
        coordinator_port=1,
        launcher_port=2,
        report_ports=[5],
        placement=place(wanted, HostOptions(), HOST_OF_16),
    )
    environ = process.environ
    assert process.index == 2
    assert environ[names.COORDINATOR] == "10.0.0.1:8476"
    assert (environ[names.HOST], environ[names.HOSTS_PER_SLICE], environ[names.SLICE]) == ("2", "4", "0")
    assert environ["TPU_WORKER_ID"] == "2"
    assert environ["JAX_PLATFORMS"] == "tpu,cpu"
    assert not {"JAX_NUM_CPU_DEVICES", "MEGASCALE_PORT"} & set(environ)


def test_launcher_tells_no_operator_of_restarts_in_place(tmp_path: Path) -> None:
    wanted = load_job(container_manifest(accelerator="cpu:1x1", inPlaceRestarts=3))
    [process] = plan_processes(
        build_jobset(wanted, JobSettings()),
        inherited={},
        directory=tmp_path,
        checkpoint_dir="unused",
        coordinator_port=1,
        launcher_port=2,
        report_ports=[5],
    )
    assert process.environ[names.IN_PLACE_PORT] == "0"


def test_machines_without_a_secret_are_warned() -> None:
    wanted = job("v5e-16", checkpointDir="gs://bucket/run")
    workers = load_job(container_manifest(workers=2, accelerator="cpu:1x1"))
    (warning,) = without_secret(wanted, "")
    assert warning.startswith(f"{names.SECRET}: is not set, so whoever reaches port 8475 of the first host")
    assert without_secret(wanted, "ours") == without_secret(workers, "") == []


def test_secret_is_that_of_this_run_and_needs_no_cluster(tmp_path: Path) -> None:
    """Also of a job that was copied from a cluster, whose JobSet refers to its Secret there."""
    manifest = container_manifest(accelerator="cpu:2x1")
    manifest["metadata"]["uid"] = "0c7d8e0f-0000-4000-8000-000000000001"
    processes = plan_processes(
        build_jobset(load_job(manifest), JobSettings()),
        inherited={names.SECRET: "of another run"},
        directory=tmp_path,
        checkpoint_dir="unused",
        coordinator_port=1,
        launcher_port=2,
        report_ports=[5, 6],
        secret="of this run",
    )
    assert [process.environ[names.SECRET] for process in processes] == ["of this run"] * 2


ATTRIBUTES = {
    "accelerator-type": "v5litepod-16",
    "agent-worker-number": "2",
    "worker-network-endpoints": "x:8470:10.0.0.1,y:8470:10.0.0.2,z:8470:10.0.0.3,w:8470:10.0.0.4",
}


@pytest.fixture
def metadata_server():
    """A played metadata server; its `attributes` may be changed."""
    attributes = dict(ATTRIBUTES)

    def answer(request: Exchange) -> None:
        assert request.headers["Metadata-Flavor"] == "Google"
        name = request.path.removeprefix("/computeMetadata/v1/instance/attributes/")
        value = attributes.get(name)
        request.reply(404 if value is None else 200, (value or "").encode())

    with HttpServer(answer) as server:
        server.attributes = attributes  # type: ignore[attr-defined]
        yield server


def plug(pci_devices: Path, *cards: tuple[str, str]) -> None:
    """Adds PCI cards, each with its vendor and its device, as sysfs shows them."""
    for vendor, device in cards:
        folder = pci_devices / f"0000:{len(list(pci_devices.iterdir())):02x}:00.0"
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")


def test_tpu_vm_is_read_from_its_metadata(
    metadata_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    plug(tmp_path, *[("0x1ae0", "0x0063")] * 4)
    # Google's network card, and a card of somebody else with the number of a TPU.
    plug(tmp_path, ("0x1ae0", "0x0042"), ("0x10de", "0x0063"))
    environ = {"GCE_METADATA_HOST": metadata_server.host}
    assert look(environ, tmp_path) == HOST_OF_16
    metadata_server.attributes["worker-network-endpoints"] = "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"
    assert read_vm(Metadata(metadata_server.host)) == V5E_16
    del metadata_server.attributes["agent-worker-number"]
    assert look(environ, tmp_path) == FOUR


def test_chips_without_their_library_are_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    placed = PlacedJob(job("v5e-8", checkpointDir="gs://bucket/run"), Placement(on_chips=True, host=0), "again")
    with pytest.raises(CommandError, match=r"libtpu: is not installed .*requirements/trainer-tpu\.txt") as refused:
        run_job(placed, directory=tmp_path, max_processes=1)
    assert refused.value.exit_code == 77
    assert list(tmp_path.rglob("*")) == []


def test_more_workers_than_a_machine_may_have_are_refused_with_what_works(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"spec\.workers: 32 would be .* try the job with --set spec\.workers=4, or"):
        run_job(PlacedJob(job("cpu:1x1", workers=32), Placement(), "again"), directory=tmp_path, max_processes=8)


def test_machine_without_chips_asks_no_metadata_server(tmp_path: Path) -> None:
    assert look({"GCE_METADATA_HOST": "127.0.0.1:9"}, tmp_path) == NO_TPU


def test_metadata_server_that_is_away_is_said_where_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"--hosts: the metadata server 127\.0\.0\.1:9 does not answer"):
        look({"GCE_METADATA_IP": "127.0.0.1:9"}, tmp_path, wants_vm=True)
    plug(tmp_path, ("0x1ae0", "0x005e"))
    assert look({"GCE_METADATA_IP": "127.0.0.1:9"}, tmp_path) == TpuMachine(1, "v4")


@pytest.mark.parametrize(("name", "value"), [("agent-worker-number", "7"), ("worker-network-endpoints", "a,,b")])
def test_metadata_that_make_no_sense_are_refused(metadata_server: Any, name: str, value: str) -> None:
    metadata_server.attributes[name] = value
    with pytest.raises(CommandError, match=r"metadata of this machine give it number '\d' of .*pass --hosts"):
        read_vm(Metadata(metadata_server.host))
