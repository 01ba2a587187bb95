"""Runs a job on this machine: every pod of its JobSet becomes a process."""
