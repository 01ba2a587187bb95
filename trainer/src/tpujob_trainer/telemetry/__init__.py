"""What is published about a run: report, metrics, goodput, trackers."""
