"""The adapter_config.json of PEFT, compared with the fields of a job."""

import json
import math
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.data.sources.files import explained, open_root
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.storage.remote import content_of, is_there, reach
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError
from tpujob_trainer.values.json_object import json_object

ADAPTER_CONFIG = "adapter_config.json"
FIELD = "spec.trainer.lora.from"
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False,),
    "bias": ("none",),
    "lora_bias": (False,),
    "fan_in_fan_out": (False,),
    "modules_to_save": ([],),
    "trainable_token_indices": ([],),
    "layer_replication": ([],),
    "alora_invocation_tokens": ([],),
    "use_qalora": (False,),
    "use_bdlora": (False,),
}
"""Values, besides None, with which only A · B is added; huggingface/peft:src/peft/tuners/lora/config.py."""


PARAMETERS = ("gate_up_proj", "down_proj")
"""Parameters of the experts of transformers 5 that may have adapters."""
MOST_ALPHA = 1e9
"""A larger alpha is not a plausible scale, or not a number that can be computed with."""


def check_adapter(path: str, config: LoraConfig) -> frozenset[int]:
    """Checks adapter_config.json against the fields beside `from`, and returns its ranks; does not read the weights.

    A job may have the rank of most modules, or a larger one that some have: smaller adapters are padded with zeros.

    Args:
        path: the folder; local, or a URL (gs://, hf://).
        config: the block `lora`.

    Raises:
        NotFoundError: it does not exist, or cannot be read.
        ConfigurationError: it is not JSON, has another rank or alpha, or is of an unsupported kind.
    """
    with explained(path, FIELD):
        reach(path)
        root = open_root(path)
        content = content_of(root.filesystem, root.locate(ADAPTER_CONFIG))
        if content is None and is_there(root.filesystem, root.folder):
            raise NotFoundError(f"{FIELD}: {path!r} has no {ADAPTER_CONFIG}; name the folder of an adapter")
        if content is None:
            raise FileNotFoundError(root.folder)
    try:
        given = json_object(content)
        rank, alpha = _rank_and_alpha(given["r"], given["lora_alpha"])
        patterns = _patterns(given)
    except (ValueError, KeyError) as error:
        where = f"{FIELD}: {path}/{ADAPTER_CONFIG}"
        raise ConfigurationError(f"{where} is not a configuration of PEFT: {error!r}") from error
    for key, allowed in _NEUTRAL.items():
        if (value := given.get(key)) is not None and value not in allowed:
            raise ConfigurationError(
                f"{FIELD}: {ADAPTER_CONFIG} has {key}: {json.dumps(value)}, which is not computed here; only "
                f"{json.dumps(allowed[0])} is"
            )
    _check_parameters(given.get("target_parameters") or [])
    has_root = bool(given.get("use_rslora"))
    _check_patterns(patterns, alpha / rank, has_root=has_root)
    larger = {each: of_it for each, of_it in patterns.values() if each > rank}
    if config.rank in larger:
        rank, alpha = config.rank, larger[config.rank]
    scaled = alpha * math.sqrt(rank) if has_root else alpha
    for key, found, wanted in (("rank", rank, config.rank), ("alpha", scaled, config.alpha)):
        if not math.isclose(found, wanted, rel_tol=1e-6):
            because = " (lora_alpha times the root of r, by use_rslora)" if key == "alpha" and has_root else ""
            raise ConfigurationError(
                f"spec.trainer.lora.{key}: the adapter in {path} ({ADAPTER_CONFIG}) has {found:.9g}{because}, "
                f"the job says {wanted:.9g}; write {key}: {found:.9g}"
            )
    return frozenset({given["r"], *(each for each, _ in patterns.values())})


def _check_parameters(names: Any) -> None:
    """Refuses adapters of single parameters, except those of experts."""
    for name in names if isinstance(names, list) else [names]:
        if str(name).rpartition(".")[2] not in PARAMETERS:
            raise ConfigurationError(
                f"{FIELD}: {ADAPTER_CONFIG} has target_parameters: {json.dumps(names)[:200]}; only those of experts, "
                f"{' and '.join(PARAMETERS)}, are computed here"
            )


def _rank_and_alpha(rank: Any, alpha: Any) -> tuple[int, float]:
    """The rank and alpha of a file, checked.

    Raises:
        ValueError: one is not a valid number.
    """
    if type(rank) is not int or rank < 1:
        raise ValueError(f"a rank of {str(rank)[:40]}")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < MOST_ALPHA:
        raise ValueError(f"an alpha of {str(alpha)[:40]}")
    return rank, float(alpha)


def _patterns(given: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """The rank and alpha of each module whose values differ from the rest.

    Raises:
        ValueError: they are not as PEFT writes them.
    """
    ranks, alphas = (given.get(key) or {} for key in ("rank_pattern", "alpha_pattern"))
    if not isinstance(ranks, dict) or not isinstance(alphas, dict):
        raise ValueError("rank_pattern and alpha_pattern are not objects")  # noqa: TRY004 - of a file
    return {
        module: _rank_and_alpha(ranks.get(module, given["r"]), alphas.get(module, given["lora_alpha"]))
        for module in sorted({*ranks, *alphas})
    }


def _check_patterns(patterns: Mapping[str, tuple[int, float]], scale: float, *, has_root: bool) -> None:
    """Refuses modules with another alpha / rank than the rest; with rsLoRA, all modules with values of their own."""
    for module, (rank, alpha) in patterns.items():
        if has_root or not math.isclose(alpha / rank, scale, rel_tol=1e-6):
            raise ConfigurationError(
                f"{FIELD}: {ADAPTER_CONFIG} has alpha {alpha:g} and rank {rank:g} for {module[:200]!r}, which counts "
                "other times than the rest; only one quotient for all modules is computed here"
            )
