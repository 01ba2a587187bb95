"""Parses the name of an accelerator to its hosts, chips and node labels, from one table.

Forms: a size, `v4-16`, whose number counts the same as in Google's names: TensorCores for v3, v4, v5p and tpu7x, chips
for v5e and v6e; a shape in chips, `v6e:16x16`; and `cpu:2x4`, 2 hosts of 4 CPU devices.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from tpujob_resource.topology import suggestions as refusals
from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.tables import GENERATIONS, Generation, Shape

FIELD = "spec.accelerator"
ACCELERATOR_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
COUNT_LABEL = "cloud.google.com/gke-accelerator-count"
MAX_CPU_HOSTS = 256
MAX_CPU_DEVICES = 256


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One slice: the resources to request from Kubernetes, and its number of hosts."""

    name: str
    """The name as given, such as `v4-16` or `v6e:4x4`."""
    generation: str
    """`v3`, `v4`, `v5e`, `v5p`, `v6e`, `tpu7x` or `cpu`."""
    topology: str
    """Shape in chips, such as `2x2x2`; for `cpu`, hosts x devices."""
    chips: int
    """TPU chips of one slice; for `cpu`, CPU devices."""
    hosts_per_slice: int
    chips_per_host: int
    """The amount of google.com/tpu that a pod requests; for `cpu`, CPU devices."""
    jax_devices_per_chip: int = 1
    machine_type: str | None = None
    """GKE machine type of each host; None: `cpu`."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Node labels that select the slice's machines; empty for `cpu`."""
    note: str | None = None
    """An explanation for the status of a name that can be misread; None: the name is clear."""

    @property
    def is_tpu(self) -> bool:
        """False for `cpu:HOSTSxDEVICES`."""
        return self.generation != "cpu"

    @property
    def is_multi_host(self) -> bool:
        """Whether one slice spans several hosts."""
        return self.hosts_per_slice > 1

    @property
    def devices_per_host(self) -> int:
        """`jax.local_device_count()` of each process."""
        return self.chips_per_host * self.jax_devices_per_chip


def parse_accelerator(text: str, *, chips_per_host: int | None = None, slices: int = 1) -> Accelerator:
    """The slice that a name describes.

    Args:
        text: A size (`v4-16`, `v5e-256`, `v5litepod-256`), a shape (`v6e:16x16`) or `cpu:HOSTSxDEVICES`.
        chips_per_host: 4 or 8, for the one shape that exists on two machines, 2x4 of v5e and v6e. None: one host of 8,
            or two of 4 for several slices, because GKE joins only slices of several hosts.
        slices: How many of them train together.

    Raises:
        InvalidField: There is no such slice; the message has the number of chips and names the closest slices.
    """
    if text.startswith("cpu"):
        return _parse_cpu(text)
    match = re.fullmatch(r"([a-z0-9]+)(?:-([0-9]{1,6})|:([0-9]{1,4}(?:x[0-9]{1,4})*))", text)
    if match is None:
        raise InvalidField(FIELD, refusals.unknown_form(text))
    prefix, size, shape_text = match.groups()
    generation = _generation(prefix, is_size=size is not None)
    if generation is None:
        raise InvalidField(FIELD, refusals.unknown_generation(text, prefix))
    if size is not None:
        shape = generation.sizes.get(int(size))
        if shape is None:
            raise InvalidField(FIELD, refusals.no_such_size(generation, text, int(size)))
    else:
        shape = tuple(int(n) for n in shape_text.split("x"))
        if not is_sold(generation, shape):
            raise InvalidField(FIELD, refusals.no_such_shape(generation, text, shape))
    return _accelerator(generation, text, shape, chips_per_host, slices, by_size=size is not None)


def is_sold(generation: Generation, shape: Shape) -> bool:
    """Whether Google offers slices of this shape."""
    if shape in generation.shapes:
        return True
    if not generation.max_cubes or len(shape) != generation.dimensions:
        return False
    ordered = tuple(sorted(shape)) if generation.any_order else shape
    rises = list(ordered) == sorted(ordered)
    cubes = prod(n // 4 for n in ordered)
    return rises and all(n > 0 and n % 4 == 0 for n in ordered) and cubes <= generation.max_cubes


def _generation(prefix: str, *, is_size: bool) -> Generation | None:
    for generation in GENERATIONS.values():
        if prefix == generation.name or (is_size and prefix in generation.aliases):
            return generation
    return None


def _accelerator(
    generation: Generation, text: str, shape: Shape, chips_per_host: int | None, slices: int, *, by_size: bool
) -> Accelerator:
    topology = "x".join(map(str, shape))
    chips = prod(shape)
    per_host = generation.chips_per_host(shape)
    is_single_host = per_host == chips
    label = (generation.single_host_label if is_single_host else None) or generation.label
    machine = (generation.single_host_machine if is_single_host else None) or generation.machines[per_host]
    labels = {ACCELERATOR_LABEL: label, TOPOLOGY_LABEL: topology}
    note = None
    if per_host == 8:
        if chips_per_host == 4 or (chips_per_host is None and slices > 1):
            per_host, machine = 4, generation.machines[4]
        labels[COUNT_LABEL] = str(per_host)
        note = refusals.two_machines(text, generation, per_host, is_asked_for=chips_per_host is not None)
    if chips_per_host not in (None, per_host):
        raise InvalidField(
            f'spec.nodeSelector["{COUNT_LABEL}"]',
            f'"{chips_per_host}" does not go with {text}, whose hosts have {per_host} chips; leave it out',
        )
    if by_size and generation.cores_in_size > 1:
        note = refusals.cores_note(generation, text, shape)
    elif shape not in generation.shapes and list(shape) != sorted(shape):
        rising = "x".join(map(str, sorted(shape)))
        note = f"{text}: the usual order is {rising}; pods wait for a node pool made with exactly {topology}"
    return Accelerator(
        name=text,
        generation=generation.name,
        topology=topology,
        chips=chips,
        hosts_per_slice=chips // per_host,
        chips_per_host=per_host,
        jax_devices_per_chip=generation.jax_devices_per_chip,
        machine_type=machine,
        node_selector=labels,
        note=note,
    )


def _parse_cpu(text: str) -> Accelerator:
    match = re.fullmatch(r"cpu:([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", text)
    if match is None:
        raise InvalidField(FIELD, f'"{text}" is not cpu:HOSTSxDEVICES, as in cpu:2x4 for 2 hosts of 4 CPU devices')
    hosts, devices = int(match[1]), int(match[2])
    if hosts > MAX_CPU_HOSTS or devices > MAX_CPU_DEVICES:
        raise InvalidField(
            FIELD, f'"{text}": at most {MAX_CPU_HOSTS} hosts of at most {MAX_CPU_DEVICES} CPU devices each'
        )
    return Accelerator(
        name=text,
        generation="cpu",
        topology=f"{hosts}x{devices}",
        chips=hosts * devices,
        hosts_per_slice=hosts,
        chips_per_host=devices,
    )
