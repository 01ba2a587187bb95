"""Batch jobs: independent workers on a corpus, and the code that their tasks share."""
