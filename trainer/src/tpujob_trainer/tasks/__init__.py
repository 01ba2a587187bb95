"""One file for each purpose that assembles parts, and the parts it assembles.

- `attempt`: One attempt's training, from a state to the last step: the loop, and going back where it diverges.
- `checkpointing`: The checkpoints of an attempt, and what report, metrics and log say about them.
- `compiler`: Compiling such that no process waits for another one on the devices.
- `dataset`: The text of a run: its units, made once by process 0, kept beside the checkpoint, the same for all
  processes.
- `over_corpus`: What one independent worker does from start to end, whatever its task computes.
- `corpus_task`: What tells one such task from another.
- `extract`: Activations of layers.
- `score`: Loss and perplexity of each row.
- `embed`: One vector for each row.
- `generate`: A continuation of each row.
- `exporting`: The finished model as files of Hugging Face, written by all processes after the last step.
- `forecast`: What a job will read and write, from some rows of its data.
- `hooks`: What the loop does between steps, from the configuration: evaluation, samples, memory profiles, the export.
- `preflight`: The hosts themselves, before the first step: an all-reduce over all devices, checked, and what hosts
  are short of.
- `pretrain`: Pretraining: puts the parts together, restores or starts anew, and trains.
- `probe`: Whether a pod can use the job's checkpoint directory: an object is written, listed, read and deleted
  there.
- `reporting`: The report of a process, served from its first seconds on, and the watchdog that reads it.
- `restore_or_init`: What an attempt trains from: the newest checkpoint that all processes can read, else fresh
  weights.
- `rollback_log`: Going back to a checkpoint after a loss that is not finite, and what is remembered of it beside the
  checkpoint.
- `session`: What a task starts and ends with: the other processes, the report, the checkpoint directory, the
  attempt's file.
- `staged_weights`: Weights on the Hugging Face hub, copied once for all workers of a job.
- `stored_checkpoint`: Reads a checkpoint without its run: verifies its arrays, or writes its weights as a Hugging Face
  model.
- `trackers`: The trackers of a run, from the configuration.
- `worker`: What a task of independent workers needs around its work: name, report, claims, uploads.
"""
