"""The training loop and what it is made of.

- `arithmetic`: What a configuration comes to on so many devices, by arithmetic alone: without JAX, in a moment.
- `batches`: Global batches: rows of each process become its part of arrays over all devices; the data position goes
  with them.
- `eval_step`: The loss of a batch without learning from it: a pure function of (weights, batch).
- `evaluation`: The loss on text that is not learned from, now and then between two steps; on all processes, the same
  on all.
- `flops`: Floating point operations of training, by arithmetic: `cost_analysis` counts a scan's body once and no
  kernel.
- `generate`: Text written by the model. All processes compute it, for the weights lie on all of them; who wants it,
  keeps it.
- `loop`: The training loop.
- `nonfinite`: What becomes of steps whose loss or gradient is not finite: arithmetic only.
- `optimizer`: AdamW with a linear warm-up and a cosine decay, on the plain tree of weights.
- `sample_hook`: Texts by the model in training, now and then between two steps; on all processes, told by process 0.
- `save_policy`: When to save, and how long to wait for it.
- `state_bytes`: Memory of weights and optimizer on a device, by arithmetic alone: without JAX.
- `step`: The train step: a pure function of (state, batch). No clock, no process, no input or output.
- `step_flags`: What processes tell each other inside the step, so that all of them act on the same step.
- `step_logger`: What the loop has to tell: the report, the metrics and, on process 0, a line in the log.
- `token_loss`: The loss of each token: cross-entropy of ours, or a function of the user's own.
"""
