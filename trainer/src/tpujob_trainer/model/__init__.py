"""Architectures, weights, meshes, partitioning."""
