"""Small objects on storage: files beside a checkpoint, the output of workers."""

from tpujob_trainer.storage.bucket import Bucket, Stored, is_local, pattern_problem
from tpujob_trainer.storage.opening import open_bucket

__all__ = ["Bucket", "Stored", "is_local", "open_bucket", "pattern_problem"]
