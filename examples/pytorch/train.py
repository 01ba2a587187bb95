"""A plain PyTorch script: data-parallel linear regression over all hosts. It knows nothing of tpujob.

Its place among the others is in the variables that torch.distributed reads by itself; `framework: pytorch` sets them.
Process 0 saves to TPUJOB_CHECKPOINT_DIR, and every process restores from there: a volume or directory that all share.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVE_EVERY, ROWS, FEATURES = int(os.environ.get("STEPS", "50")), 10, 64, 8
asked_to_stop = False


def request_stop(*_: object) -> None:
    """Remembers the request; the loop leaves after its step."""
    global asked_to_stop
    asked_to_stop = True


signal.signal(signal.SIGTERM, request_stop)
dist.init_process_group("gloo", init_method="env://")
rank, processes = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(FEATURES, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

directory = Path(os.environ["TPUJOB_CHECKPOINT_DIR"])
directory.mkdir(parents=True, exist_ok=True)
checkpoint, begun = directory / "newest.pt", 0
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begun = saved["step"]

truth = torch.arange(FEATURES, dtype=torch.float32)
for step in range(begun, STEPS):
    # Rows follow from step and process alone, so that a resumed run sees the same ones.
    generator = torch.Generator().manual_seed(step * processes + rank)
    inputs = torch.randn(ROWS, FEATURES, generator=generator)
    loss = torch.nn.functional.mse_loss(model(inputs).squeeze(1), inputs @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # A request reaches one host before another: all leave after the same step.
    total = torch.stack([loss.detach(), torch.tensor(float(asked_to_stop))])
    dist.all_reduce(total)
    leaves = total[1].item() > 0
    if rank == 0 and (leaves or (step + 1) % SAVE_EVERY == 0):
        partial = checkpoint.with_suffix(".partial")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, partial)
        partial.replace(checkpoint)
    if rank == 0:
        print(json.dumps({"step": step + 1, "loss": total[0].item() / processes, "from": begun}), flush=True)
    if leaves:
        dist.barrier()
        sys.exit(75)

dist.destroy_process_group()
