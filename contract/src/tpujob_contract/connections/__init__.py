"""What runs: the HTTP server of launcher, trainer and operator, and the limit of its open files."""
