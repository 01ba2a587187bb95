"""What people and machines are told: report, metrics, goodput, trackers."""
