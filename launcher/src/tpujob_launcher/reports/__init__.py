"""Information that is served and written about a running program: report, progress, termination message, profile."""
