"""The tests, and what they play with."""

import gc

# The workers, and programs of tests, hold many objects that stay (modules, compiled programs): with Python's own
# thresholds a tenth of their time goes into looking for garbage among them.
gc.set_threshold(20_000, 50, 100)
