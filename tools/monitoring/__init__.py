"""What is generated from the metrics in the code.

- `families`: Every metric of trainer and operator, read from the code that exports it.
- `reference`: docs/metrics.md.
"""
