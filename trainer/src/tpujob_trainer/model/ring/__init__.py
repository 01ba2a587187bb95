"""Ring attention: devices of `context` pass keys and values on, so that none holds those of a whole row.

- `attention`: The hops round the ring, forward and backward, and how their results are combined.
- `blocks`: One hop on CPU and GPU, a block of queries at a time.
- `by_splash`: One hop on TPU, by the splash kernel and the two kernels of its backward pass.
"""
