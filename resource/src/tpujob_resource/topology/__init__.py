"""Accelerator names as people write them, as shapes, hosts, chips and node labels."""
