"""Seconds from a fault in one process of a job to the next finished step, with restarts in place and without.

- `programs`: the training programs: the trainer, MaxText, a plain JAX program.
- `faults`: the faults that are injected into one process.
- `timing`: the start and the first step of the next attempt, from the lines of process 0's log.
- `desk`, `pods`: a job under `tpujob run`, and in pods of the one-machine cluster.
- `page`: docs/reference/recovery.md.
"""
