"""Runs one of our steps, or one matrix product, for each line on standard input; see step_on_cpu.py.

`step` prints the seconds of a step; `rate` its operations per second (6 per token and weight of a matrix product, half
of attention because it is causal, no recomputation); `product` the operations per second of a product of two matrices.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.arithmetic import training_flops_per_token
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import Batch, init_state, make_train_step

SIZE = 4096


def random_batch(run: ResolvedConfig) -> Batch:
    """A batch of rows without padding."""
    shape = (run.batch_size, run.sequence_length)
    ids = np.random.default_rng(0).integers(0, run.model.vocab_size, (shape[0], shape[1] + 1), dtype=np.int32)
    return Batch(
        inputs=ids[:, :-1],
        targets=ids[:, 1:],
        segment_ids=np.ones(shape, np.int32),
        positions=np.tile(np.arange(shape[1], dtype=np.int32), (shape[0], 1)),
        loss_mask=np.ones(shape, bool),
        signals=np.tile(StepFlags().pack(), (shape[0], 1)),
    )


def main(block: dict[str, object]) -> None:
    run = resolve(parse_config(block), num_devices=1, vocabulary=2, platform="cpu")
    model = Model(run.model, build_mesh(slices=1, shape=run.mesh))
    schedule = make_schedule(run.optimizer, steps=run.steps)
    optimizer = make_optimizer(run.optimizer, schedule)
    step = make_train_step(model, optimizer, schedule, clip_norm=run.optimizer.clip_norm)
    state = init_state(model, optimizer, 0)
    batch = random_batch(run)
    operations = training_flops_per_token(run.model, run.sequence_length, is_causal=True) * run.tokens_per_step
    square = jnp.ones((SIZE, SIZE), jnp.float32)
    product = jax.jit(lambda x: x @ x)
    product(square).block_until_ready()
    print(f"{run.model.num_parameters / 1e6:.0f} M parameters", file=sys.stderr, flush=True)
    for line in sys.stdin:
        began, began_cpu = time.monotonic(), time.process_time()
        if line.strip() == "product":
            product(square).block_until_ready()
            found = 2 * SIZE**3 / (time.monotonic() - began)
        else:
            state, metrics = step(state, batch)
            float(metrics.loss)
            jax.block_until_ready(state)
            seconds = time.monotonic() - began
            found = operations / seconds if line.strip() == "rate" else seconds
        print(f"took {found} {time.process_time() - began_cpu}", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
