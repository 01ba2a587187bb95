"""Where bytes come from: local files, buckets, the Hugging Face hub, TFDS directories."""
