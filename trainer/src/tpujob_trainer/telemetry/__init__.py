"""The telemetry of a run: report, metrics, goodput, profiles and trackers."""
