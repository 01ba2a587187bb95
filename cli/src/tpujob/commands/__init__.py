"""The commands of `tpujob`, one file each; each parses its options, calls one function and prints the result.

Modules import their dependencies inside their functions, so that `tpujob --help` and completion stay fast.
"""
