"""Process 1 of every container: gives a command its place in the job, and Kubernetes a true account of its end.

- `child`: One program, run as process 1 should run it: signals reach it, orphans are reaped, nothing of it remains.
- `command`: How a container is told to run its command under the launcher; for whoever writes pod specifications.
- `frameworks`: Frameworks that do not read JAX's own variables, or that serve no report: which there are, and
  what each needs.
- `main`: Process 1 of every container: `python -m tpujob_contract.launch -- COMMAND [ARGUMENT...]`.
- `maxtext`: MaxText: the names under which it reads its place in a job, and what it writes about its run.
- `orbax_steps`: The newest checkpoint in a folder that Orbax keeps, on Cloud Storage or in a file system, with the
  standard library.
- `output`: A child's output: passed on byte for byte as it comes, while its last lines are remembered.
- `processes`: The process tree below this one, on Linux: adopt its orphans, list it, reap it, tie it to our own life.
- `progress`: The progress of a program that writes metrics and serves no report: read here, served as the trainer
  serves its own.
- `pytorch`: PyTorch and PyTorch/XLA: the names under which they read their place in a job.
- `report_server`: GET /report and /metrics of a program that serves neither, for the operator and for Prometheus.
- `reporting`: Serves what is known of a program while it runs, and writes the last of it into the termination message.
- `signals`: Signals as values to wait for: none is lost while something else is done, and no code runs inside a
  handler.
- `termination_message`: The termination message: what `kubectl describe pod` and the operator read about a container
  that has ended.
- `tpu`: Who holds the TPU of this machine: a chip can be opened by one process at a time, and libtpu takes all of
  them.
- `tpu_access`: Whether this user may open the TPU of this machine: said at start, and when a program that needed it
  has failed.
"""
