"""Independent workers that share one list of units through a bucket, and never communicate directly."""
