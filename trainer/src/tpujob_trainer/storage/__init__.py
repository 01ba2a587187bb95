"""Small objects on storage: beside a checkpoint, in the output of workers.

- `bucket`: What a bucket can do.
- `errors`: What a failed access to storage means: refused for good, out of reach for now, or damaged.
- `fsspec_bucket`: A bucket on any storage that fsspec opens.
- `opening`: The bucket at a URL.
- `reachability`: Whether anybody answers where a bucket is.
- `tensorstore_bucket`: A bucket on Google Cloud Storage or in a directory.
"""

from tpujob_trainer.storage.bucket import Bucket, Stored, is_local
from tpujob_trainer.storage.opening import open_bucket

__all__ = ["Bucket", "Stored", "is_local", "open_bucket"]
