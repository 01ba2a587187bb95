"""Model families: the differences between decoders, one file each."""

from tpujob_trainer.model.families import (
    deepseek,
    gemma,
    glm,
    gpt_oss,
    granite,
    llama,
    mistral,
    mixtral,
    olmo,
    phi,
    qwen,
    seed_oss,
    smollm,
)
from tpujob_trainer.model.families.base import Family, Preset

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        llama.LLAMA,
        mistral.MISTRAL,
        mistral.MINISTRAL,
        qwen.QWEN2,
        qwen.QWEN3,
        qwen.QWEN2_MOE,
        qwen.QWEN3_MOE,
        gemma.GEMMA,
        gemma.GEMMA2,
        gemma.GEMMA3,
        mixtral.MIXTRAL,
        phi.PHI3,
        olmo.OLMO2,
        smollm.SMOLLM3,
        gpt_oss.GPT_OSS,
        deepseek.DEEPSEEK_V3,
        glm.GLM4_MOE_LITE,
        seed_oss.SEED_OSS,
        granite.GRANITE,
    )
}
"""By the value of `model.family`."""

FAMILY_PRESETS: dict[str, Preset] = {
    name: preset for family in FAMILIES.values() for name, preset in family.presets.items()
}

__all__ = ["FAMILIES", "FAMILY_PRESETS", "Family", "Preset"]
