"""Data sets: `tpujob data`."""
