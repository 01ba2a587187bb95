"""The attempts of one container: its program starts, ends, and may start again with those of the others."""
