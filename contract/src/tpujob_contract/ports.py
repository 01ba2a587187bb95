"""Ports inside a pod. All of a job's pods use the same ones."""

COORDINATOR = 8476
"""JAX coordination service, served by process 0. Explicit, since JAX has changed its own default before."""
MEGASCALE = 8080
"""Coordinator of the libtpu runtime over several slices (DCN)."""
REPORT = 9432
"""HTTP /metrics and /report of every trainer process. Not 9431, the default of Orbax's and grain's own exporters."""
LAUNCHER = 8475
"""Launcher 0, where the others ask whether programs start again in place. Not served unless the job allows that."""
