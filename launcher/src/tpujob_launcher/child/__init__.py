"""The program of a container and its process tree: start, output, signals, end."""
