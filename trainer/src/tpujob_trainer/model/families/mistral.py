"""Mistral: Llama; only the first version has a sliding window. Ministral: each layer may have it or not."""

import dataclasses

from tpujob_trainer.model.families.base import ConfigJson, Family, Preset
from tpujob_trainer.model.families.keys import FULL, SLIDING
from tpujob_trainer.model.families.keys import MISTRAL as KEYS

MISTRAL = Family(
    name="mistral",
    config=ConfigJson(model_type="mistral", architecture="MistralForCausalLM", defaults=KEYS),
    presets={
        # mistralai/Mistral-7B-v0.3 config.json: without the sliding window of its first version.
        "mistral-7b": Preset(
            family="mistral",
            layers=32,
            embed_dim=4096,
            heads=32,
            kv_heads=8,
            mlp_dim=14336,
            vocab_size=32_768,
            rope_theta=1_000_000.0,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)

MINISTRAL = Family(
    name="ministral",
    config=dataclasses.replace(
        MISTRAL.config,
        model_type="ministral",
        architecture="MinistralForCausalLM",
        defaults=KEYS | {"layer_types": None},
        has_layer_types=True,
        usual_layer_types=lambda given, window: [FULL if window is None else SLIDING] * given["num_hidden_layers"],
    ),
)
