"""Inspects a data set before training: its size, its problems, and the first global batch."""

from tpujob_trainer.data.inspection.facts import REACH_SECONDS, DataWarnings, inspect, is_slow_to_read
from tpujob_trainer.data.inspection.sample import sample_rows, size_of

__all__ = ["REACH_SECONDS", "DataWarnings", "inspect", "is_slow_to_read", "sample_rows", "size_of"]
