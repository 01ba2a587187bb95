"""Launchers of one job that know each other, and start their programs again in the same containers."""
