"""Attention: over the mesh, for each kind of device, with latents, and rotary positions."""
