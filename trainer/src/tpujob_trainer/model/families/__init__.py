"""Model families: what tells one decoder from another, one file each.

- `base`: What a family is: the values it fixes in a `ModelShape`, and its presets.
- `gemma`: Gemma 2 and 3: soft caps or normalised queries, alternating windows, scaled and tied embeddings.
- `llama`: Llama 2, 3 and 3.1 to 3.3.
- `mistral`: Mistral, with or without its sliding window.
- `mixture`: Mixtures of experts: Mixtral and Qwen 3 MoE.
- `qwen`: Qwen 2, 2.5 (biases) and 3 (normalised queries and keys).
"""

from __future__ import annotations

from tpujob_trainer.model.families import gemma, llama, mistral, mixture, qwen
from tpujob_trainer.model.families.base import Family, Preset

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        llama.LLAMA,
        mistral.MISTRAL,
        qwen.QWEN2,
        qwen.QWEN3,
        gemma.GEMMA2,
        gemma.GEMMA3,
        mixture.MIXTRAL,
        mixture.QWEN3_MOE,
    )
}
"""By the name that `model.family` gives."""

FAMILY_PRESETS: dict[str, Preset] = {
    name: preset for family in FAMILIES.values() for name, preset in family.presets.items()
}

__all__ = ["FAMILIES", "FAMILY_PRESETS", "Family", "Preset"]
