"""From a job to its JobSet and the objects beside it; pure functions of job and settings."""
