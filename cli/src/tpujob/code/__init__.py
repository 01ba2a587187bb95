"""A person's code on its way into a job: packed, put where the pods can read it, named by its digest."""
