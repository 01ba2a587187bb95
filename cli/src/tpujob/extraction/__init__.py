"""Extractions under way or done: `tpujob extract`."""
