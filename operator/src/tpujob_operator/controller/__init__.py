"""Watches, queue, leadership, and carrying out what was decided."""
