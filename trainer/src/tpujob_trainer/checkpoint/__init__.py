"""State to storage and back: saves, commits, restores, retention, ownership.

- `claimed_path`: The folder of a step on its way to its commit, in a directory that another run may have taken over
  meanwhile.
- `fingerprint`: Fingerprints of arrays: exact, computed where the arrays are, the same for every sharding and number
  of processes.
- `fingerprint_handler`: The fingerprints in a checkpoint: written in the background, when the devices have computed
  them.
- `fingerprint_kernel`: The two sums over the words that one device holds of an array, in one pass over its memory.
- `inspection`: What lies in a checkpoint directory, for people: steps, sizes, what was measured, who made them.
- `layout`: The steps of a checkpoint directory, as the file system shows them: no JAX, no other process.
- `lease`: The right of one live run to write to a checkpoint directory in a bucket, where nothing can be locked.
- `local_copies`: Copies of the state on the hosts, between two checkpoints: each process writes what its devices hold.
- `local_file`: What one process holds of a step, in one file: a header, then the bytes of its shards, each with a
  checksum.
- `local_restore`: Restoring the newest local copies that are whole on every host, or on all hosts of one slice.
- `manager`: Checkpoints of a run: one commit point for model, optimizer, step and data state.
- `one_slice`: Reading a checkpoint with the processes of one slice, and the copy from its devices to those of the
  other slices.
- `ownership`: Whose checkpoint directory it is. Nothing of another job is ever overwritten by a mistake in a path.
- `restore`: Restoring the newest checkpoint that every process can read, and that is what was saved.
- `retention`: Which checkpoints stay, and the deleting of the others: in a thread of process 0, which nothing waits
  for.
- `save`: One save on its way to its commit.
- `save_health`: Saves that fail: since when, why, and when it is time to end the run.
- `step_slots`: Whether there is room for a step: what lies in its place, and which saves that were given up still
  write.
"""
