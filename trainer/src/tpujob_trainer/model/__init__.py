"""Architectures, weights, meshes, partitioning.

- `decoder`: The decoder: embedding, layers, norm, output projection.
- `layers`: The parts of a decoder layer. Arrays: B rows, S positions, D embed, N query heads, K key heads, H head
  width, F mlp.
- `loss`: Cross-entropy in chunks of positions: float32 logits of a whole batch never exist.
- `mesh`: The mesh: all devices of the run on the axes `data` and `fsdp`.
- `partitioning`: How arrays lie on the mesh, and how a device gets what it needs.
- `presets`: Models by name, with the context and batch they are usually trained with.
- `shape`: What the `model` block says, and the numbers that follow from it.
"""
