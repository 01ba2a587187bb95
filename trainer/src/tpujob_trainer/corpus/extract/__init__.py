"""What independent workers compute from the rows of a corpus, and how it is written to files."""
