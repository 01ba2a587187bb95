"""Seed-OSS: Llama with biases on queries, keys and values, and if the file says so on the output of attention."""

from tpujob_trainer.model.families.base import ConfigJson, Family
from tpujob_trainer.model.families.keys import COMMON, flag

SEED_OSS = Family(
    name="seed-oss",
    traits={"qkv_bias": True},
    config=ConfigJson(
        model_type="seed_oss",
        architecture="SeedOssForCausalLM",
        defaults=COMMON
        | {
            "vocab_size": 155136,
            "hidden_size": 4096,
            "intermediate_size": 27648,
            "num_hidden_layers": 64,
            "num_attention_heads": 80,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 524288,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "pretraining_tp": 1,
            "attention_dropout": 0.1,
            "residual_dropout": 0.1,
            "attention_bias": True,
            "attention_out_bias": False,
            "mlp_bias": False,
        },
        only={"mlp_bias": (False,)},
        read=lambda given: {
            "qkv_bias": flag(given, "attention_bias"),
            "out_bias": flag(given, "attention_out_bias"),
        },
        write=lambda shape: {"attention_bias": shape.qkv_bias, "attention_out_bias": shape.out_bias},
    ),
)
