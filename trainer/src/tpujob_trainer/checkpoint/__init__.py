"""State to storage and back: saves, commits, restores, retention, ownership.

- `fingerprint`: Fingerprints of arrays: exact, computed where the arrays are, the same for every sharding and number
  of processes.
- `fingerprint_handler`: The fingerprints in a checkpoint: written in the background, when the devices have computed
  them.
- `fingerprint_kernel`: The two sums over the words that one device holds of an array, in one pass over its memory.
- `layout`: The steps of a checkpoint directory, as the file system shows them: no JAX, no other process.
- `lease`: The right of one live run to write to a checkpoint directory in a bucket, where nothing can be locked.
- `manager`: Checkpoints of a run: one commit point for model, optimizer, step and data state.
- `ownership`: Whose checkpoint directory it is. Nothing of another job is ever overwritten by a mistake in a path.
- `restore`: Restoring the newest checkpoint that every process can read, and that is what was saved.
- `retention`: Which checkpoints stay, and the deleting of the others: in a thread of process 0, which nothing waits
  for.
- `save`: One save on its way to its commit.
- `save_health`: Saves that fail: since when, why, and when it is time to end the run.
- `step_slots`: Whether there is room for a step: what lies in its place, and which saves that were given up still
  write.
"""
