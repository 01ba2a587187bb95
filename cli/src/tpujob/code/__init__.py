"""A person's code on its way into a job: packed, put where the pods can read it, named by its digest.

- `committed`: The files of a commit, as git would check them out; the folder and its index stay as they are.
- `files`: The files of a folder that are packed: what git tracks, and changes; nothing that git ignores.
- `packing`: An archive of a folder, the same bytes from the same files.
- `attach`: `--code DIR` of `submit` and `run`: packed, stored once, written into the resource.
- `unpacked`: The code of a job, unpacked on this machine.
- `upload`: A file into a bucket, or onto a mounted volume, unless it is there.
"""
