"""Batch jobs: independent workers over a corpus, and what their tasks share."""
