"""The launcher as one file, for images that do not contain it."""
