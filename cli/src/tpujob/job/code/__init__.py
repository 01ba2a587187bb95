"""A user's code for a job: packed, named by its digest, and stored where the pods can read it."""
