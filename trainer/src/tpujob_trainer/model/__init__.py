"""Architectures, weights, meshes, partitioning.

- `blocked_attention`: Attention on CPU and GPU in memory that grows with the length, not with its square.
- `decoder`: The decoder: embedding, layers, norm, output projection.
- `experts`: A mixture of experts: a router sends each token through a few of many feed-forward blocks.
- `families/`: What tells one decoder from another, one file each.
- `layers`: The parts of a decoder layer. Arrays: B rows, S positions, D embed, N query heads, K key heads, H head
  width, F mlp.
- `loss`: Cross-entropy in chunks of positions: float32 logits of a whole batch never exist.
- `mesh`: The mesh: all devices of the run on the axes `data` and `fsdp`.
- `partitioning`: How arrays lie on the mesh, and how a device gets what it needs.
- `presets`: Models by name, with the context and batch they are usually trained with.
- `rotary`: Rotary positions: pairs of numbers turned by an angle that grows with the position.
- `shape`: What the `model` block says, and the numbers that follow from it.
"""
