"""The data to read, divided into units, and the order in which they are read."""
