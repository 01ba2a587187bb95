"""Compiles the real step for a TPU topology on a machine without TPUs: whether it fits, and what it exchanges."""
