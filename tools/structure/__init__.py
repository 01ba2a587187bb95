"""Measurements of the repository's structure, and the limits that `make lint` enforces."""
