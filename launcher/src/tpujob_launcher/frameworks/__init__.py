"""Frameworks that do not read JAX's own variables, or that serve no report."""
