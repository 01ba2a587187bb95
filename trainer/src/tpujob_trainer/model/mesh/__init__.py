"""Meshes: how many devices each axis has, what that costs a step, the mesh of the devices at hand, and its rings."""
