"""Independent workers that share one list of units through a bucket, and never talk to each other."""
