"""One program, run as process 1 should run it, and its process tree."""
