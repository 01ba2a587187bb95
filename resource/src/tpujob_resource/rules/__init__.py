"""The checks that refuse a job or warn about it: rules between fields, limits, the `trainer` block."""
