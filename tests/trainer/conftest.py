"""Eight CPU devices for every test of the trainer; jax reads this once, when its backend starts."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
# Compiled fast, not well: half of the tests' time is compiling.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
