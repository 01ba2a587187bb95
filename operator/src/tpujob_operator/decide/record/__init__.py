"""What is written into the status."""
