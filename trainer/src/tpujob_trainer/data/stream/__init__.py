"""From lanes to batches: packing, position, prefetching."""
