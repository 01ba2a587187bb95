"""Parsing and checking of values that users write: quantities, names, rules between fields, kinds of files."""
