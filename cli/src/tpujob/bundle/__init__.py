"""Everything that a site without a network needs, in one folder.

- The folder is its own state: what is there and right is kept, so an interrupted run goes on where it was.
  SHA256SUMS is written last; a folder without it is not a bundle yet.
- Wheels come by the lock files alone: their hashes decide what is right, wherever a file was found.
- The folder is a build context: its Dockerfile makes the images from the wheels, with no index.
"""
