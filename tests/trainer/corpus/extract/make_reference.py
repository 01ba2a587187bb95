"""What transformers computes inside of the tiny models of the tests of weights: `reference/<family>.npz`.

    python -m tests.trainer.corpus.extract.make_reference

Needs torch and transformers, which are not in the development environment (requirements/reference.in). What it writes
is committed: tests compare with it.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "reference"
MODELS = Path(__file__).parents[2] / "model" / "weights" / "reference"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2")
WITH_POST_NORMS = ("gemma2",)
"""What their attention and MLP add to the stream has been normalised by a module of its own."""
PROMPT = [3, 17, 5, 42, 8, 11, 2, 60, 33, 9, 21, 4]


def values(name: str) -> dict[str, np.ndarray]:
    """By our names of sites, float32 [tokens, width]; taken by forward hooks."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODELS / name, attn_implementation="eager", dtype=torch.float32).eval()
    found: dict[str, np.ndarray] = {}

    def keep(site: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            found[site] = tensor[0].numpy().astype(np.float32)

        return hook

    for number, layer in enumerate(model.model.layers):
        has_post_norms = name in WITH_POST_NORMS
        attention = layer.post_attention_layernorm if has_post_norms else layer.self_attn
        mlp = layer.post_feedforward_layernorm if has_post_norms else layer.mlp
        attention.register_forward_hook(keep(f"layer_{number}_attention"))
        mlp.register_forward_hook(keep(f"layer_{number}_mlp"))
        layer.register_forward_hook(keep(f"layer_{number}_residual"))
    model.model.norm.register_forward_hook(keep("norm"))
    with torch.no_grad():
        told = model(torch.tensor([PROMPT]), use_cache=False, output_hidden_states=True)
    found["embedding"] = told.hidden_states[0][0].numpy()
    return found


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name in FAMILIES:
        arrays: dict[str, Any] = values(name)
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
        sys.stdout.write(f"{name}: written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
