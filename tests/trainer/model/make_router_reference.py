"""What transformers says of the balance of random routers: `router_reference.json`.

    python -m tests.trainer.model.make_router_reference

Needs torch and transformers, which are not in the development environment (requirements/reference.in).
"""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "router_reference.json"
LAYERS, ROWS, LENGTH, EXPERTS = 2, 2, 6, 4


def make() -> dict[str, Any]:
    """Router logits [layers][tokens][experts], which tokens count, and the loss of each layer by experts of a token."""
    import torch
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    torch.manual_seed(0)
    # Scores that prefer the first experts: nothing is balanced.
    logits = 2 * torch.randn(LAYERS, ROWS * LENGTH, EXPERTS) + torch.tensor([2.0, 1.0, 0.0, -1.0])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]])
    losses = {
        name: {
            str(chosen): [float(load_balancing_loss_func((layer,), EXPERTS, chosen, given)) for layer in logits]
            for chosen in (1, 2)
        }
        for name, given in (("all", None), ("masked", mask))
    }
    return {"logits": logits.tolist(), "counts": mask.tolist(), "losses": losses}


if __name__ == "__main__":
    FILE.write_text(json.dumps(make()) + "\n")
