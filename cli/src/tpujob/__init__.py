"""The command line: run a job here, see what would run there, make data."""
