"""Trains language models with JAX over the hosts of one or several TPU slices."""
