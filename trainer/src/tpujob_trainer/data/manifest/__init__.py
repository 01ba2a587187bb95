"""What there is to read, divided into units, and in which order they are read."""
