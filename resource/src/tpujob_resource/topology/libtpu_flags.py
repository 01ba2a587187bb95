"""TPU compiler flags of published recipes, by generation, for LIBTPU_INIT_ARGS.

A flag is included if a published recipe sets it, the libtpu of the trainer's image accepts it (`make tpu-compiler`),
and it does not change results. Not included:

- Continuation fusion of gathers (`xla_tpu_enable_async_collective_fusion` and related flags) outside v5e: libtpu
  refuses to compile with it ("not supported/recommended on platforms other than TPU v5e").
- All-reduces and reduce-scatters on SparseCores: apple/axlearn:axlearn/common/compiler_options.py reports worse losses
  with them on v6e and tpu7x.
- `xla_jf_spmd_threshold_for_windowed_einsum_mib=1000000` on v6e (TR, AX): without windowed einsums, computation waits
  for all gathers of weights and reductions of gradients. On 16 chips mistral-7b in MaxText 0.2.5 then waits for 52 GB
  in its loop, and for 9.6 GB without the flag; from 64 chips on, as in these recipes, there are no windowed einsums,
  and the flag has no effect.
- Schedules for activations that are offloaded to the host: they belong to a remat policy that few users choose.

Sources:
MT    AI-Hypercomputer/maxtext, benchmarks/xla_flags_library.py and configs/v5e, configs/v5p
TR    AI-Hypercomputer/tpu-recipes, training/trillium/Llama3.1-8B-MaxText and training/ironwood/llama3.1-70b
REP   gclouduniverse/reproducibility, Training/TPU-v5p/Mixtral-8X7B-Maxtext/scripts/run_mixtral-8x7b.sh
AX    apple/axlearn, axlearn/common/compiler_options.py
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

ENVIRONMENT_VARIABLE = "LIBTPU_INIT_ARGS"
_NAME = re.compile(r"--(?:no)?([A-Za-z0-9_]+)(?:=|$)")


@dataclass(frozen=True)
class Flag:
    """A flag, and the generations for which it applies."""

    name: str
    value: str
    effect: str
    source: str
    generations: tuple[str, ...]
    needs_slices: bool = False
    """Whether it applies only to two or more slices."""

    def __str__(self) -> str:
        return f"--{self.name}={self.value}"


FLAGS = (
    Flag(
        "xla_enable_async_all_gather",
        "true",
        "starts gathers of weights before their use, and computes meanwhile",
        "MT, TR, AX",
        ("v4", "v5e", "v5p", "v6e", "tpu7x"),
    ),
    Flag(
        "xla_enable_async_collective_permute",
        "true",
        "sends to neighbours while it computes",
        "REP, AX",
        ("v4", "v5p"),
    ),
    Flag(
        "xla_tpu_enable_async_collective_fusion",
        "true",
        "runs exchanges in pieces beside arithmetic",
        "MT",
        ("v5e",),
    ),
    Flag(
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather",
        "true",
        "includes gathers in these exchanges",
        "MT",
        ("v5e",),
    ),
    Flag(
        "xla_tpu_enable_async_collective_fusion_multiple_steps",
        "true",
        "continues an exchange over several operations",
        "MT",
        ("v5e",),
    ),
    Flag(
        "xla_tpu_overlap_compute_collective_tc",
        "true",
        "lets the core compute while an exchange runs",
        "MT, TR, REP",
        ("v5e", "v5p", "v6e"),
    ),
    Flag(
        "xla_tpu_megacore_fusion_allow_ags",
        "false",
        "keeps gathers out of fusions over both cores of a chip, so that they can start early",
        "REP, TR",
        ("v5p",),
    ),
    Flag(
        "xla_tpu_enable_ag_backward_pipelining",
        "true",
        "gathers weights for the backward pass ahead of it",
        "REP",
        ("v5p",),
    ),
    Flag(
        "xla_tpu_scoped_vmem_limit_kib",
        "65472",
        "on-chip memory of one operation; what is left prefetches the next",
        "AX",
        ("v5p",),
    ),
    Flag(
        "xla_tpu_scoped_vmem_limit_kib",
        "98304",
        "on-chip memory of one operation; what is left prefetches the next",
        "MT, TR",
        ("v6e",),
    ),
    Flag(
        "xla_tpu_scoped_vmem_limit_kib",
        "65536",
        "on-chip memory of one operation; what is left prefetches the next",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_use_minor_sharding_for_major_trivial_input",
        "true",
        "a layout of gradients that reduce-scatter needs no copy for",
        "MT, TR",
        ("v6e",),
    ),
    Flag(
        "xla_tpu_relayout_group_size_threshold_for_reduce_scatter",
        "1",
        "the same for groups of every size",
        "MT, TR",
        ("v6e",),
    ),
    Flag(
        "xla_tpu_assign_all_reduce_scatter_layout",
        "true",
        "the same for an all-reduce of which each device keeps a part",
        "MT, TR",
        ("v6e",),
    ),
    Flag(
        "xla_tpu_bf16_emission_mode",
        "NATIVE_EMISSION",
        "computes in bfloat16 where the chip can",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_enable_sparse_core_collective_offload_all_gather",
        "true",
        "gathers on SparseCores, beside the TensorCore's arithmetic",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_enable_sparse_core_collective_offload_2d_all_gather",
        "true",
        "the same over two dimensions of the slice",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_enable_sparse_core_collective_offload_3d_all_gather",
        "true",
        "the same over three",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_use_single_sparse_core_for_all_gather_offload",
        "true",
        "one SparseCore for each gather, so that two can run",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_use_tc_device_shape_on_sc",
        "true",
        "SparseCores see the slice as TensorCores do",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_sc_disable_megacore_partitioning",
        "true",
        "needed for gathers on SparseCores",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather",
        "false",
        "leaves gathers to the SparseCores",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_prefer_async_allgather_to_allreduce",
        "true",
        "gathers where an all-reduce of padded parts would do the same",
        "TR",
        ("tpu7x",),
    ),
    Flag(
        "xla_tpu_enable_data_parallel_all_reduce_opt",
        "true",
        "exchanges gradients between slices beside arithmetic",
        "MT, AX",
        ("v4", "v5e", "v5p", "v6e", "tpu7x"),
        needs_slices=True,
    ),
    Flag(
        "xla_tpu_data_parallel_opt_different_sized_ops",
        "true",
        "the same for gradients of different sizes",
        "MT, AX",
        ("v4", "v5e", "v5p", "v6e", "tpu7x"),
        needs_slices=True,
    ),
)


def recommended_flags(generation: str, slices: int) -> tuple[Flag, ...]:
    """The flags for this many slices of a generation; empty for a generation without a published recipe."""
    return tuple(flag for flag in FLAGS if generation in flag.generations and (slices > 1 or not flag.needs_slices))


def merge_flags(flags: tuple[Flag, ...], own: str) -> str:
    """A value of LIBTPU_INIT_ARGS: these flags, except those that `own` sets, followed by `own`."""
    named = {match[1] for word in own.split() if (match := _NAME.match(word))}
    return " ".join([*(str(flag) for flag in flags if flag.name not in named), *own.split()])


def by_generation() -> Mapping[str, tuple[Flag, ...]]:
    """The flags of each generation, including those for several slices; for a table in the documentation."""
    names = dict.fromkeys(name for flag in FLAGS for name in flag.generations)
    return {name: recommended_flags(name, 2) for name in names}
