"""The decoder: its shape and presets (no jax), its layers, its loss, how it lies on the devices.

Nothing is imported here, so that reading a configuration costs no start of jax.
"""
