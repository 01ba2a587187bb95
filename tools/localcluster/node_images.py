"""The images of the node: each is imported once, and again when its inputs have changed."""

import json
from collections.abc import Callable
from pathlib import Path

from tools.localcluster import archive, binaries
from tools.localcluster.containerd import PAUSE_IMAGE, Containerd

JOBSET_IMAGE = "tpujob.test/jobset"


class NodeImages:
    """The images of a containerd, with a record of the inputs of each."""

    def __init__(self, containerd: Containerd, folder: Path) -> None:
        """Sets the folder for temporary archives and the record; keep it as long as the images."""
        self._containerd = containerd
        self._folder = folder
        self._notes = folder / "imported.json"

    def add(self, name: str, made_from: str, write_archive: Callable[[Path], object]) -> None:
        """Imports an image unless containerd has it, made from the same inputs.

        Args:
            name: Of the image, with registry and tag.
            made_from: A hash that changes with the image; its id, if the old image is to be removed on replacement.
            write_archive: Writes the image to the given file.
        """
        notes = json.loads(self._notes.read_text()) if self._notes.exists() else {}
        if notes.get(name) == made_from and name in self._containerd.images():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "image.tar"
        file.unlink(missing_ok=True)
        try:
            write_archive(file)
            self._containerd.import_image(file)
        finally:
            file.unlink(missing_ok=True)
        if name in notes and notes[name] != made_from:
            self._containerd.forget_image(notes[name])
        self._notes.write_text(json.dumps({**notes, name: made_from}, indent=2))

    def add_program(self, image: str, program: str, *, at: str) -> None:
        """Imports an image of one of our static programs."""
        path = binaries.path(program)
        made_from = binaries.PROGRAMS[program].inputs_hash() + at
        self.add(image, made_from, lambda file: archive.write_image(file, image, program=path, at=at))


def add_system_images(images: NodeImages) -> None:
    """Imports the images that every node needs: the pause container, and the JobSet controller for its chart."""
    images.add_program(PAUSE_IMAGE, "pause", at="/pause")
    images.add_program(f"{JOBSET_IMAGE}:{binaries.PROGRAMS['jobset'].version}", "jobset", at="/manager")
