"""Process 1 of every container: gives a command its place in the job, and Kubernetes a true account of its end.

- `child`: One program, run as process 1 should run it: signals reach it, orphans are reaped, nothing of it remains.
- `command`: How a container is told to run its command under the launcher; for whoever writes pod specifications.
- `frameworks`: What a framework calls a process's place in its job, where it does not read JAX's own variables.
- `main`: Process 1 of every container: `python -m tpujob_contract.launch -- COMMAND [ARGUMENT...]`.
- `output`: A child's output: passed on byte for byte as it comes, while its last lines are remembered.
- `processes`: The process tree below this one, on Linux: adopt its orphans, list it, reap it, tie it to our own life.
- `signals`: Signals as values to wait for: none is lost while something else is done, and no code runs inside a
  handler.
- `termination_message`: The termination message: what `kubectl describe pod` and the operator read about a container
  that has ended.
- `tpu`: Who holds the TPU of this machine: a chip can be opened by one process at a time, and libtpu takes all of
  them.
"""
