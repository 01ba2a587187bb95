"""Each key of each family's config.json, changed to several values: equal numbers to transformers', or refused.

    python -m tests.trainer.model.weights.single_changes [--seed N] [FAMILY …] [--keys KEY …] [--most N]

Null is among the values. Of keys that a class reads together, pairs are changed, too, to values drawn by the seed.

`--python` has torch and transformers (`make reference-models` makes one). The keys are those of transformers' own
configuration classes, and those that other releases and other families have. Each changed file is read by transformers,
which makes a random model of it and computes logits; then the trainer reads the same files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TOLERANCE = 2e-4
"""Of float32 logits, as a part of the largest."""
MOST_ROUNDINGS = 8
"""Where a changed size makes a wide model: as many times what float32 costs transformers itself."""
PYTHON = Path(__file__).parents[4] / ".cache" / "reference" / "bin" / "python"
PROMPT = [3, 17, 5, 42, 8, 11, 2, 60, 33, 9, 21, 4]
SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
    "sliding_window": 5,
    "query_pre_attn_scalar": 16,
    "pad_token_id": 0,
}
OF_FAMILY: dict[str, dict[str, Any]] = {
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
    },
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_THETA = {"rope_theta": 5000.0}
_WIDE_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 1000.0}
"""Its bounds are not whole, and within the pairs of a small head."""
_ROPES = [
    {"rope_type": "default", **_THETA},
    {"rope_type": "linear", "factor": 2.0, **_THETA},
    {"type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.7, "beta_fast": 8, "truncate": False},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
        **_THETA,
    },
    {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [2.0, 3.0, 4.0, 5.0]},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    {_FULL: {**_WIDE_YARN, "truncate": False}, _SLIDING: _THETA},
    {},
    "linear",
]
VALUES: dict[str, list[Any]] = {
    "rope_parameters": _ROPES,
    "rope_scaling": _ROPES,
    "original_max_position_embeddings": [8, 32],
    "rope_theta": [100.0, 10000.0, 1000000.0],
    "layer_types": [[_FULL] * 4, [_SLIDING] * 4, [_SLIDING, _FULL] * 2, ["chunked_attention"] * 4],
    "no_rope_layers": [[1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1]],
    "mlp_only_layers": [[], [0], [1, 2]],
    "hidden_act": ["gelu", "relu", "gelu_pytorch_tanh", "silu"],
    "hidden_activation": ["gelu", "silu", "gelu_new", "gelu_pytorch_tanh"],
    "partial_rotary_factor": [0.5, 1.0, 0.25],
    "sliding_window_pattern": [2, 3, 6],
    "rope_local_base_freq": [100.0, 10000.0, 500.0],
    "is_causal": [True, False],
    "max_window_layers": [0, 2, 28],
    "is_decoder": [True, False],
    "tie_word_embeddings": [True, False],
    "attention_multiplier": [0.1, 1.0],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}, {"quant_method": "fp8"}],
}
"""Of keys whose type alone does not say what is worth trying."""
TOGETHER = (
    ("rope_scaling", "rope_parameters", "rope_theta", "original_max_position_embeddings", "max_position_embeddings"),
    ("rope_scaling", "rope_parameters", "partial_rotary_factor", "head_dim", "rope_local_base_freq"),
    ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "sliding_window_pattern"),
    ("no_rope_layers", "no_rope_layer_interval", "layer_types", "use_sliding_window", "num_hidden_layers"),
    ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "query_pre_attn_scalar"),
    ("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "norm_topk_prob"),
    ("n_group", "topk_group", "n_routed_experts", "num_experts_per_tok", "first_k_dense_replace"),
)
"""Keys that classes read together."""
DRAWS = 3
"""Of values for each pair of them."""
_OF_THE_CLASS = ("_", "base_model_", "attribute_map", "keys_to_ignore", "sub_configs", "model_type", "has_no_defaults")
"""What fields of a class begin with that no file has."""
ABSENT = "(absent)"
_BESIDES = (
    *("rope_scaling", "rope_theta", "partial_rotary_factor", "sliding_window_pattern", "rope_local_base_freq"),
    *("is_causal", "is_decoder", "attention_multiplier", "quantization_config", "original_max_position_embeddings"),
)
"""Keys of no configuration class that files have."""


def cases(model_type: str, names: list[str], everything: set[str], seed: int) -> list[tuple[str, Any, dict[str, Any]]]:
    """Key, value and content of each changed file."""
    drawn = random.Random(f"{seed} {model_type}")  # noqa: S311 - values to try
    small = SMALL | OF_FAMILY.get(model_type, {})
    base = {"model_type": model_type} | {key: value for key, value in small.items() if key in names}
    made: list[tuple[str, Any, dict[str, Any]]] = [("(none)", None, base)]
    known = {*names, *_BESIDES}

    def values(key: str) -> list[Any]:
        return VALUES.get(key) or _values(base.get(key, DEFAULTS[model_type].get(key)), drawn)

    for key in sorted(everything | known):
        tried = values(key) if key in known else [drawn.choice(values(key))]  # of other families
        made += [(key, value, {**base, key: value}) for value in (*tried, *([None] if None not in tried else []))]
        if key in base:
            made.append((key, ABSENT, {other: kept for other, kept in base.items() if other != key}))
    pairs = {pair for keys in TOGETHER for pair in itertools.combinations(keys, 2) if known.issuperset(pair)}
    for one, other in sorted(pairs):
        for _ in range(DRAWS):
            drawn_values = {key: drawn.choice([*values(key), None]) for key in (one, other)}
            made.append((f"{one}, {other}", drawn_values, base | drawn_values))
    return made


def _values(default: Any, drawn: random.Random) -> list[Any]:
    if isinstance(default, bool) or default is None:
        return [True, False, None]
    if isinstance(default, int):
        return [*{1, 2, drawn.choice([3, 4, 6, 8]), max(1, default // 2), min(2 * default, 128)}, None]
    if isinstance(default, float):
        return [default * drawn.choice([0.5, 0.1]), default * drawn.choice([2.0, 3.0]) + 0.01, 0.0]
    return [default, None]


DEFAULTS: dict[str, dict[str, Any]] = {}


def _make(
    folder: Path, model_types: list[str], others: list[str], seed: int, keys: list[str], most: int | None
) -> None:
    """With torch: write the changed files, random weights for them, and the logits of transformers.

    Keys of `others`, further families, are tried, too. If `keys` are given, these alone are; if `most` is, so many
    files of each family.
    """
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM

    transformers.logging.set_verbosity_error()
    fields: dict[str, list[str]] = {}
    for model_type in dict.fromkeys([*model_types, *others]):
        kind = type(AutoConfig.for_model(model_type))
        fields[model_type] = [each for each in kind.__dataclass_fields__ if not each.startswith(_OF_THE_CLASS)]
        made = kind()
        DEFAULTS[model_type] = {each: getattr(made, each, None) for each in fields[model_type]}
    everything = {key for names in fields.values() for key in names}
    written = []
    for model_type in model_types:
        tried = cases(model_type, fields[model_type], everything, seed)
        tried = [case for case in tried if not keys or not {*case[0].split(", ")}.isdisjoint(keys)]
        chosen = random.Random(seed).sample(tried, min(most or len(tried), len(tried)))  # noqa: S311 - files to try
        for number, (key, value, content) in enumerate(chosen):
            at = folder / model_type / str(number)
            at.mkdir(parents=True)
            (at / "config.json").write_text(json.dumps(content))
            case = {"folder": str(at), "model_type": model_type, "key": key, "value": value}
            try:
                torch.manual_seed(seed)
                config = AutoConfig.from_pretrained(at)
                model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
                model = model.eval()
                with torch.no_grad():
                    for parameter in model.parameters():
                        size = 0.2 if parameter.ndim > 1 else 0.1
                        parameter.add_(size * torch.randn_like(parameter))
                    for name, buffer in model.named_buffers():
                        if name.endswith("e_score_correction_bias"):
                            buffer.add_(0.1 * torch.rand_like(buffer))
                    case["logits"] = model(torch.tensor([PROMPT]), use_cache=False).logits[0].tolist()
                model.save_pretrained(at)
                case["rounding"] = _rounding(model, case["logits"])
                (at / "config.json").write_text(json.dumps(content))
            except Exception as error:  # noqa: BLE001 - whatever a library makes of a wrong file
                case["failure"] = f"{type(error).__name__}: {error}"[:200]
            written.append(case)
    (folder / "cases.json").write_text(json.dumps(written))


def _rounding(model: Any, logits: list[list[float]]) -> float:
    """How far its float32 logits are from those in float64: the wider the model, the more."""
    import torch

    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the others multiply no float64
    with torch.no_grad():
        exact = model.double()(torch.tensor([PROMPT]), use_cache=False).logits[0]
    return float((exact - torch.tensor(logits)).abs().max())


def _compare(case: dict[str, Any]) -> str:
    """equal, refused, fails there, or how far the logits are apart."""
    import numpy as np

    from tpujob_trainer.model.weights.load import load_weights
    from tpujob_trainer.model.weights.read_shape import read_shape
    from tpujob_trainer.values.errors import TrainerError

    try:
        shape = read_shape(case["folder"], remat="none", compute_dtype="float32")
    except TrainerError:
        return "refused"
    except Exception as error:  # noqa: BLE001 - a file never ends in a traceback
        return f"differs: {type(error).__name__}: {error}"
    if "logits" not in case:
        return "fails in transformers"
    try:
        model = _model(shape)
        weights = load_weights(case["folder"], shape, model.abstract_weights, model.shardings)
        found = np.asarray(_compiled(shape)(weights))
    except TrainerError:
        return "refused"
    told = np.array(case["logits"])
    largest = max(1.0, np.abs(told).max())
    apart = float(np.abs(found - told).max() / largest)
    allowed = max(TOLERANCE, MOST_ROUNDINGS * case.get("rounding", 0.0) / largest)
    return "equal" if apart <= allowed else f"differs by {apart:.1e}, where {allowed:.1e} is allowed"


_MODELS: dict[Any, Any] = {}
_COMPILED: dict[Any, Any] = {}


def _model(shape: Any) -> Any:
    import jax

    from tpujob_trainer.model.decoder import Model
    from tpujob_trainer.model.mesh.build import build_mesh

    if shape not in _MODELS:
        _MODELS[shape] = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    return _MODELS[shape]


def _compiled(shape: Any) -> Any:
    import jax
    import jax.numpy as jnp

    from tpujob_trainer.model.decoder import soft_capped

    model = _model(shape)
    ids = jnp.asarray([PROMPT])

    def compute(weights: Any) -> Any:
        hidden, output = model.hidden(weights, ids, jnp.arange(len(PROMPT))[None], jnp.ones_like(ids))
        return soft_capped(hidden[0] @ output, shape.logit_softcap)

    if shape not in _COMPILED:
        _COMPILED[shape] = jax.jit(compute)
    return _COMPILED[shape]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="as config.json calls them; all where none is named")
    parser.add_argument("--python", default=str(PYTHON))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keys", action="extend", nargs="*", default=[], help="only these")
    parser.add_argument("--most", type=int, help="so many files of each family, drawn by the seed")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    parser.add_argument("--others", action="extend", nargs="*", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        _make(Path(options.make), options.families, options.others, options.seed, options.keys, options.most)
        return 0
    from tpujob_trainer.model.weights.known_keys import CONFIGS

    families = options.families or list(CONFIGS)
    with tempfile.TemporaryDirectory(prefix="single-changes-") as folder:
        command = [options.python, "-m", __spec__.name, "--make", folder, "--seed", str(options.seed), *families]
        command += ["--others", *CONFIGS, "--keys", *options.keys]
        command += ["--most", str(options.most)] if options.most else []
        subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stderr=subprocess.DEVNULL)
        found: dict[str, Counter[str]] = {family: Counter() for family in families}
        different = 0
        for case in json.loads((Path(folder) / "cases.json").read_text()):
            told = _compare(case)
            found[case["model_type"]][re.split(" by |: ", told)[0]] += 1
            if told.startswith("differs"):
                different += 1
                sys.stdout.write(f"{case['model_type']}: {case['key']} = {json.dumps(case['value'])}: {told}\n")
    for family, counts in found.items():
        sys.stdout.write(f"{family}: {', '.join(f'{count} {word}' for word, count in sorted(counts.items()))}\n")
    return 1 if different else 0


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
