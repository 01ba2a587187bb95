"""Everything that a site without a network needs, in one folder.

- The folder is its own state: what is there and right is kept, so an interrupted run goes on where it was.
  SHA256SUMS is written last; a folder without it is not a bundle yet.
- Wheels come by the lock files alone: their hashes decide what is right, wherever a file was found.
- The folder is a build context: its Dockerfile makes the images from the wheels, with no index.

- `archives`: Image archives: one file that `docker load`, `podman load`, `ctr images import`, skopeo and buildah all
  read.
- `builders`: Image stores of this machine: which builder has an image, and the image as an archive.
- `checksums`: SHA256SUMS: written as `sha256sum` does and read as `sha256sum --check` does.
- `contents`: What a bundle holds, and where it comes from in a checkout. Pure.
- `locks`: Lock files: what they pin, in blocks of text that pip understands. Pure.
- `making`: `tpujob bundle`: makes a bundle, or goes on with one that was interrupted.
- `packing`: Archives that depend on nothing but what is in them: the chart as Helm packs it, and the sources.
- `readme`: The README of a bundle: what is in it, and the commands that load, install and build. Pure, but for its
  template.
- `target`: The Python and the system that wheels are for, which need not be those that run this. Pure.
- `wheels`: Wheels of the lock files, and our own, in one folder; whole for each Python that was asked for, without an
  index.
"""
