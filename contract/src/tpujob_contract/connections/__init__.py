"""Ports, and the servers of all that listen on them."""
