"""A job's own code: downloads its archive, verifies it by its digest, unpacks it, and puts it on PYTHONPATH.

`carrier` brings the launcher itself, as one file.
"""
