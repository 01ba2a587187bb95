"""One file for each purpose that assembles parts, and the parts it assembles.

- `attempt`: One attempt's training, from a state to the last step: the loop, and going back where it diverges.
- `checkpointing`: The checkpoints of an attempt, and what report, metrics and log say about them.
- `compiler`: Compiling such that no process waits for another one on the devices.
- `dataset`: The text of a run: its units, made once by process 0, kept beside the checkpoint, the same for all
  processes.
- `extract`: Activations of a corpus: what one independent worker does from start to end.
- `hooks`: What the loop does between steps, from the configuration: evaluation and samples.
- `pretrain`: Pretraining: puts the parts together, restores or begins, and trains.
- `restore_or_init`: What an attempt trains from: the newest checkpoint that all processes can read, else fresh
  weights.
- `rollback_log`: Going back to a checkpoint after a loss that is not finite, and what is remembered of it beside the
  checkpoint.
- `session`: What a task starts and ends with: the other processes, the report, the checkpoint directory, the
  attempt's file.
- `trackers`: The trackers of a run, from the configuration.
- `worker`: What a task of independent workers needs around its work: name, report, claims, uploads.
"""
