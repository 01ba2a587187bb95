"""Adapters of experts as PEFT stores them with transformers 5, where a layer's experts are two parameters.

`gate_up_proj` has the gates' rows above those of the up projections, `down_proj` is separate. Of each, A is
`[experts · rank, inputs]`, expert by expert, and B `[outputs, rank · experts]`, rank by rank; huggingface/peft:
src/peft/tuners/lora/layer.py, `ParamWrapper`. If both parameters have adapters, one wraps the other, and the tensors of
one are named `base_layer`.
"""

from collections.abc import Callable, Collection, Iterable

import numpy as np

from tpujob_trainer.model.weights.adapter_config import FIELD
from tpujob_trainer.values.errors import ConfigurationError

type Pair = tuple[np.ndarray, np.ndarray]
"""A `[experts, inputs, rank]` and B `[experts, rank, outputs]`."""

WRAPPED = "base_layer"


def container_of(module: str) -> str:
    """The module of a layer's experts in transformers 5, from the name of one expert's matrix in transformers 4."""
    return module.partition(".{expert}")[0].replace(".block_sparse_moe.", ".mlp.")


def pairs_of_experts(
    read: Callable[[str], np.ndarray | None],
    container: str,
    *,
    targets: Iterable[str],
    experts: int,
    widths: tuple[int, int],
    rank: int,
    ranks: Collection[int],
) -> dict[str, Pair]:
    """The adapters of a layer's experts by our names; empty if there are no such tensors.

    Args:
        read: returns a tensor by its name; None: there is none.
        container: name of the module, with PEFT's prefix.
        targets: names of matrices that must have adapters.
        experts: of the layer.
        widths: of the residual stream, and of an expert.
        rank: of each of our adapters.
        ranks: those that the adapter's configuration names.

    Raises:
        ConfigurationError: an adapter is of another model or rank.
    """
    embed, mlp = widths
    found: dict[str, Pair] = {}
    for module in (f"{container}.{WRAPPED}", container):
        a, b = (read(f"{module}.lora_{each}.weight") for each in "AB")
        if a is None and b is None:
            continue
        if a is None or b is None:
            raise ConfigurationError(f"{FIELD}: the adapter of {module} has lora_A or lora_B alone; copy it anew")
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1] or a.shape[0] % experts:
            raise ConfigurationError(f"{FIELD}: the adapter of {module} is {a.shape} and {b.shape}, which do not fit")
        wide = a.shape[0] // experts
        of_experts = (
            a.reshape(experts, wide, -1).transpose(0, 2, 1),
            b.reshape(-1, wide, experts).transpose(2, 1, 0),
        )
        if (a.shape[1], b.shape[0]) == (embed, 2 * mlp):
            found |= _gate_and_up(of_experts, module, rank, ranks, mlp)
        elif (a.shape[1], b.shape[0]) == (mlp, embed) and wide <= rank and wide in ranks:
            found["down"] = filled_up(of_experts, rank)
        else:
            raise ConfigurationError(
                f"{FIELD}: the adapter of {module} is {a.shape} and {b.shape}; this model's are of rank {rank} between "
                f"{embed} and {mlp}, of {experts} experts"
            )
    wanted = {"gate", "up", "down"} & {*targets}
    if found and wanted != found.keys():
        raise ConfigurationError(
            f"{FIELD}: {container} has adapters of {', '.join(sorted(found))}; name these, and no others of gate, up "
            "and down, in spec.trainer.lora.targets"
        )
    return found


def filled_up(pair: Pair, rank: int) -> Pair:
    """The adapter padded with zeros to this rank: A `[..., inputs, rank]`, B `[..., rank, outputs]`."""
    a, b = pair
    missing = (0, rank - a.shape[-1])
    others = [(0, 0)] * (a.ndim - 2)
    return np.pad(a, [*others, (0, 0), missing]), np.pad(b, [*others, missing, (0, 0)])


def _gate_and_up(pair: Pair, module: str, rank: int, ranks: Collection[int], mlp: int) -> dict[str, Pair]:
    """The adapters of gate and up, which share A, or have half of the rank each."""
    a, b = pair
    above, below = b[:, :, :mlp], b[:, :, mlp:]
    if a.shape[2] <= rank and a.shape[2] in ranks:
        return {"gate": filled_up((a, above), rank), "up": filled_up((a, below), rank)}
    if a.shape[2] != 2 * rank or above[:, rank:].any() or below[:, :rank].any():
        raise ConfigurationError(
            f"{FIELD}: the adapter of {module} has rank {a.shape[2]}, which does not divide into one of rank {rank} "
            f"for gate and one for up; write rank: {a.shape[2]}, and alpha as many times as large"
        )
    return {"gate": (a[:, :, :rank], above[:, :rank]), "up": (a[:, :, rank:], below[:, rank:])}
