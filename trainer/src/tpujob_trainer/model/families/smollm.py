"""SmolLM3: Llama in which every fourth layer has no rotary positions (Yang and others 2025, RoPE to NoPE)."""

from typing import Any

from tpujob_trainer.model.families.base import ConfigJson, Family, Preset
from tpujob_trainer.model.families.keys import COMMON, FULL, NO_BIAS, SLIDING, whole


def _turned(given: Any) -> list[int]:
    """For each layer, 1 if its queries and keys have rotary positions, else 0."""
    layers, listed = given["num_hidden_layers"], given["no_rope_layers"]
    if listed is None:
        every = whole(given, "no_rope_layer_interval")
        return [int((at + 1) % every != 0) for at in range(layers)]
    if not isinstance(listed, list) or len(listed) < layers or {*listed} - {0, 1}:
        raise ValueError(f"no_rope_layers is {listed}; give 1 (with positions) or 0 for each of the {layers} layers")
    return listed[:layers]


def _read(given: Any) -> dict[str, Any]:
    turned = _turned(given)
    every = turned.index(0) + 1 if 0 in turned else None
    if turned == [int(every is None or (at + 1) % every != 0) for at in range(len(turned))]:
        return {"unturned_every": every}
    return {"unturned_every": None, "turned_layers": tuple(bool(each) for each in turned)}


def _write(shape: Any) -> dict[str, Any]:
    return {"no_rope_layers": [int(each) for each in shape.layers_turned]}


def _windowed_without_positions(given: Any, window: int | None) -> list[str]:
    return [FULL if turned or window is None else SLIDING for turned in _turned(given)]


SMOLLM3 = Family(
    name="smollm3",
    traits={"tie_embeddings": True, "unturned_every": 4},
    config=ConfigJson(
        model_type="smollm3",
        architecture="SmolLM3ForCausalLM",
        theta=2_000_000.0,
        has_layer_types=True,
        usual_layer_types=_windowed_without_positions,
        defaults=COMMON
        | {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "pad_token_id": 128004,
            "bos_token_id": 128000,
            "eos_token_id": 128001,
            "use_sliding_window": False,
            "sliding_window": None,
            "no_rope_layers": None,
            "no_rope_layer_interval": 4,
            "layer_types": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
        },
        only=NO_BIAS | {"mlp_bias": (False,)},
        read=_read,
        write=_write,
    ),
    presets={
        # HuggingFaceTB/SmolLM3-3B config.json.
        "smollm3-3b": Preset(
            family="smollm3",
            layers=36,
            embed_dim=2048,
            heads=16,
            kv_heads=4,
            mlp_dim=11008,
            vocab_size=128_256,
            rope_theta=5_000_000.0,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)
