"""A corpus read once, by independent workers or by one program."""
