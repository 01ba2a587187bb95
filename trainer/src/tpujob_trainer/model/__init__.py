"""Architectures, weights, meshes, partitioning.

- `attention`: Attention over the mesh: each device has its rows, its heads and its part of the positions.
- `blocked_attention`: Attention on CPU and GPU in memory that grows with the length, not with its square.
- `chips`: Memory and rates of each TPU generation, as JAX and the compiler count devices.
- `decoder`: The decoder: embedding, layers, norm, output projection.
- `embedding`: The embedding table over the mesh: activations travel, never the table.
- `experts`: A mixture of experts: a router sends each token through a few of many feed-forward blocks.
- `families/`: What tells one decoder from another, one file each.
- `layers`: The parts of a decoder layer. Arrays: B rows, S positions, D embed, N query heads, K key heads, H head
  width, F mlp.
- `lora`: Low-rank adapters: the weights stay as they are, and beside each chosen matrix a product of two thin ones is
  trained.
- `lora_config`: Which matrices get low-rank adapters, and how wide these are; without JAX.
- `loss`: Cross-entropy over the mesh, a chunk of tokens at a time.
- `mesh`: The mesh: all devices of the run on the axes of `partitioning.AXES`.
- `mesh_choice`: How many devices each axis has: chosen for a model and a slice, or checked.
- `output_columns`: The output matrix while the loss is computed: each device has a part of the vocabulary, or all.
- `own`: A model of the user's own: an NNX module that a configuration names, trained as ours are.
- `partitioning`: How arrays lie on the mesh.
- `presets`: Models by name, with the context and batch they are usually trained with.
- `quantized`: Matrix products of a layer in a narrow type, int8 or fp8, with scales made from the values at hand.
- `remat`: What the backward pass of a layer finds again, and what it recomputes.
- `ring/`: Ring attention: devices of `context` pass keys and values on, so that none holds those of a whole row.
- `rotary`: Rotary positions: pairs of numbers turned by an angle that grows with the position.
- `shape`: What the `model` block says, and the numbers that follow from it.
- `splash`: Attention on TPU by JAX's splash kernel.
"""
