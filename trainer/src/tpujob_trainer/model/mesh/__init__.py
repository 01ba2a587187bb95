"""Meshes: how many devices each axis has, what that costs a step, and the mesh of the devices that are there."""
