"""Trains language models with JAX on the hosts of one or several TPU slices."""
