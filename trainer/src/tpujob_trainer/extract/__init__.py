"""Activations of a corpus: what is kept of which layers, and how rows become files.

- `layers`: Layers by number or name, and the passes over the model that keep them. Pure.
"""
