"""A container: its program starts, ends, and may start again with those of the others; its processes and its TPU."""
