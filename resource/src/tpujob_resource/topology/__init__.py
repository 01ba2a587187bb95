"""Accelerator names as people write them, as shapes, hosts, chips and node labels.

- `machines`: Processors and memory of GKE's TPU machine types.
- `parse`: From the name of an accelerator to its hosts, chips and node labels: arithmetic over one table.
- `suggestions`: The sentences of the topology: what a wrong name would have been, and which right ones are near it.
- `tables`: The slices that exist: one row per TPU generation, every fact with the page it was read from.
"""
