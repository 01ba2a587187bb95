"""The verbs of the command line, one file each; each parses, calls one function and prints the result.

A module imports what it works with inside its function, so that `tpujob --help` and completion stay quick.
"""
