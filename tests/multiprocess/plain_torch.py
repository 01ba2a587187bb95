"""A training loop of a person's own with torch.distributed and gloo: like `plain_jax`."""

import torch
import torch.distributed as dist

from tests.multiprocess.plain_loop import loop


def main() -> None:
    """Steps until the fault, and a little longer after it."""
    dist.init_process_group("gloo")
    try:
        loop(dist.get_rank(), lambda step: dist.all_reduce(torch.ones(4) * step))
    finally:
        # Without it PyTorch aborts a process that ends well.
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
