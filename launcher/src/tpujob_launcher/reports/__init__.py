"""What is served and written about a program that runs: reports, progress, termination message, profile."""
