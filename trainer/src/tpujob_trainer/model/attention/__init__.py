"""Attention: over the mesh, on each kind of device, by latents, and the positions that turn queries and keys."""
