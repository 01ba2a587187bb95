"""Seconds from a fault in one process of a job to the next finished step, with restarts in place and without.

- `programs`: what trains: the trainer, MaxText, a plain JAX program.
- `faults`: what happens to one process, from outside it.
- `timing`: when the next attempt began and made its first step, from the lines of process 0's log.
- `desk`, `pods`: a job under `tpujob run`, and in pods of the one-machine cluster.
- `page`: docs/reference/recovery.md.
"""
