"""Meshes: the sizes of their axes, their cost per step, the mesh of the available devices, and its rings."""
