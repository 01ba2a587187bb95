"""A job's own code: from an archive in a bucket to a folder on PYTHONPATH, verified by its digest."""
