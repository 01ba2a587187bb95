"""Everything that a site without a network needs, in one folder.

- The folder is its own state: wheels with a right checksum are kept, so the next run continues an interrupted one.
  SHA256SUMS is written last; a folder without it is not a bundle yet.
- The lock files alone decide about wheels: a file must have one of their hashes, wherever it was found.
- The folder is a build context: its Dockerfile makes the images from the wheels, with no index.
"""
