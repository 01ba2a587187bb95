"""Ports, and the servers that listen on them."""
