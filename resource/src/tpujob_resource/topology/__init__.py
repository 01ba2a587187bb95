"""Translates accelerator names to shapes, hosts, chips and node labels."""
