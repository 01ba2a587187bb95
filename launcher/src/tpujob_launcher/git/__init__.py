"""A job's own code from one commit of a git repository, verified by git's own object ids."""
