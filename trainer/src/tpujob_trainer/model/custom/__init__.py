"""User-defined models: NNX modules, linen modules, and pairs of functions."""
