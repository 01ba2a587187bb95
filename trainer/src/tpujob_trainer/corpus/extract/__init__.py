"""What independent workers compute of the rows of a corpus, and how it becomes files."""
