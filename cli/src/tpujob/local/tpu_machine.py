"""The TPU of this machine: its chips, and on a Cloud TPU VM which host of which slice this is."""

import importlib.util
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode

METADATA_HOST = "metadata.google.internal"
METADATA_VARIABLES = ("GCE_METADATA_IP", "GCE_METADATA_HOST")
"""Variables that name another metadata server, for JAX and Google's client libraries as well."""
TIMEOUT_SECONDS = 3.0
"""The metadata server is on the machine itself and answers within milliseconds."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
_GOOGLE = "0x1ae0"
_GENERATIONS = {"0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e", "0x0076": "tpu7x"}
"""PCI device → generation, as in jax-ml/jax:jax/_src/hardware_utils.py."""


@dataclass(frozen=True)
class TpuVm:
    """The slice of a Cloud TPU VM and its place in it, from its metadata."""

    accelerator_type: str
    """As `gcloud` names it, such as `v5litepod-16`."""
    host: int
    """Number of this host in its slice, from 0."""
    addresses: tuple[str, ...]
    """Of all hosts of the slice, in order of their numbers."""


@dataclass(frozen=True)
class TpuMachine:
    """This machine, as far as `tpujob run` depends on it."""

    chips: int = 0
    """TPU chips on its PCI bus."""
    generation: str | None = None
    """Of these chips; None: there are none."""
    vm: TpuVm | None = None
    """None: not a TPU VM, or one whose metadata do not name its slice."""


@dataclass(frozen=True)
class Metadata:
    """A metadata server. Attributes as in jax-ml/jax:jax/_src/clusters/cloud_tpu_cluster.py."""

    host: str = METADATA_HOST
    timeout_seconds: float = TIMEOUT_SECONDS
    # Without proxies: they cannot reach the metadata of this machine.
    opener: urllib.request.OpenerDirector = field(
        default_factory=lambda: urllib.request.build_opener(urllib.request.ProxyHandler({}))
    )

    def attribute(self, name: str) -> str | None:
        """The value of an attribute of this machine; None: it has none.

        Raises:
            CommandError: the server does not answer.
        """
        url = f"http://{self.host}/computeMetadata/v1/instance/attributes/{name}"
        request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
        try:
            with self.opener.open(request, timeout=self.timeout_seconds) as response:
                return str(response.read(1 << 20).decode())
        except urllib.error.HTTPError:
            return None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(
                f"--hosts: the metadata server {self.host} does not answer ({reason}); where there is none, pass "
                "--hosts A,B,… and --host I",
                exit_code=ExitCode.NOT_FOUND,
            ) from error


def read_vm(metadata: Metadata) -> TpuVm | None:
    """The TPU VM that a metadata server describes; None: the metadata name no slice.

    Raises:
        CommandError: the server does not answer, or its list of hosts is invalid.
    """
    kind = metadata.attribute("accelerator-type")
    number = metadata.attribute("agent-worker-number")
    endpoints = metadata.attribute("worker-network-endpoints")
    if kind is None or number is None or endpoints is None:
        return None
    # Each is an address, or name:port:address.
    addresses = tuple(each.strip().rpartition(":")[2] for each in endpoints.split(","))
    if not number.strip().isdigit() or int(number) >= len(addresses) or not all(addresses):
        raise CommandError(
            f"--hosts: the metadata of this machine give it number {number!r} of {endpoints!r}; "
            "pass --hosts A,B,… and --host I"
        )
    return TpuVm(kind.strip(), int(number), addresses)


def look(
    environ: Mapping[str, str] = os.environ, pci_devices: Path = PCI_DEVICES, *, wants_vm: bool = False
) -> TpuMachine:
    """The TPU of this machine.

    Args:
        environ: May name another metadata server.
        pci_devices: Folder of the PCI devices in sysfs.
        wants_vm: Whether the metadata server is asked even if there are no chips.

    Raises:
        CommandError: with `wants_vm`, the metadata server does not answer, or its list of hosts is invalid.
    """
    generations = [found for device in pci_devices.glob("*.0") if (found := _generation(device)) is not None]
    if not generations and not wants_vm:
        return TpuMachine()
    chips, generation = len(generations), generations[0] if generations else None
    host = next((environ[name] for name in METADATA_VARIABLES if environ.get(name)), METADATA_HOST)
    try:
        return TpuMachine(chips, generation, read_vm(Metadata(host)))
    except CommandError:
        # A machine with chips and no metadata server: in a container, or not Google's.
        if wants_vm:
            raise
        return TpuMachine(chips, generation)


def require_libtpu() -> None:
    """Checks that this Python, which also runs the trainer, has the library for TPU chips.

    Raises:
        CommandError: it does not.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise CommandError(
            "libtpu: is not installed in the environment of tpujob, and this machine has TPU chips; install "
            "requirements/trainer-tpu.txt there, or pass --cpu to rehearse",
            exit_code=ExitCode.NOT_FOUND,
        )


def _generation(device: Path) -> str | None:
    """The generation of a PCI device that is a TPU chip; None for any other device."""
    try:
        vendor, number = ((device / name).read_text().strip() for name in ("vendor", "device"))
    except OSError:
        return None
    return _GENERATIONS.get(number) if vendor == _GOOGLE else None
