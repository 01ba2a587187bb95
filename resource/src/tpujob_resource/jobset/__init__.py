"""Builds the JobSet of a job and the objects beside it; pure functions of job and settings."""
