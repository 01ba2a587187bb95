"""Questions to the trainer about jobs, data and checkpoint directories, and the answers in lines for people."""
