"""A container of an image as the operator's pods have it: no rights, a read-only root, a few mounts; run by runc."""

import json
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.isolation import ImageStore, run_isolated

RUNC = "/usr/sbin/runc"
SCRATCH = ("/tmp", "/home/tpujob")
"""What the operator mounts empty folders on."""


class Container:
    """The file system of an image, and programs run in it where nothing can be reached."""

    def __init__(self, root: Path, settings: Mapping[str, Any], folder: Path) -> None:
        """Takes the mounted image, its configuration, and a folder of its own."""
        self._root = root
        self._settings = settings
        self._folder = folder

    def run(
        self, arguments: Sequence[str] = (), *, mounts: Mapping[Path, str] | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs the image's entry point to its end.

        Args:
            arguments: Instead of the image's.
            mounts: Where folders of this machine are mounted, writable as far as the user may.
            environment: Beside the image's.
        """
        name = f"tpujob-{secrets.token_hex(4)}"
        bundle = self._folder / name
        bundle.mkdir()
        specification = json.loads(self._specification())
        command = [*self._settings["Entrypoint"], *(arguments or self._settings.get("Cmd") or ())]
        user, group = map(int, self._settings["User"].split(":"))
        specification["process"] |= {
            "terminal": False,
            "args": command,
            "cwd": self._settings["WorkingDir"],
            "env": [*self._settings["Env"], *(f"{key}={value}" for key, value in environment.items())],
            "user": {"uid": user, "gid": group},
            "capabilities": {},
            "noNewPrivileges": True,
        }
        specification["root"] = {"path": str(self._root), "readonly": True}
        owned = [f"uid={user}", f"gid={group}"]
        specification["mounts"] += [
            {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": owned} for place in SCRATCH
        ]
        specification["mounts"] += [
            {"destination": place, "type": "bind", "source": str(source), "options": ["bind", "rw"]}
            for source, place in (mounts or {}).items()
        ]
        # Not a network namespace of its own: that of whoever calls, which leads nowhere but has a loopback.
        kinds = specification["linux"]["namespaces"]
        specification["linux"]["namespaces"] = [kind for kind in kinds if kind["type"] != "network"]
        (bundle / "config.json").write_text(json.dumps(specification))
        return run_isolated("nice", RUNC, f"--root={self._folder / 'runc'}", "run", name, folder=bundle)

    def _specification(self) -> str:
        file = self._folder / "config.json"
        if not file.exists():
            run_isolated(RUNC, "spec", folder=self._folder)
        return file.read_text()


@contextmanager
def container(store: ImageStore, image: str, folder: Path) -> Iterator[Container]:
    """A container of an image of the store."""
    settings = json.loads(store.run("buildah", "inspect", "--type=image", image))["OCIv1"]["config"]
    name = store.run("buildah", "from", "--pull-never", image).strip()
    try:
        yield Container(Path(store.run("buildah", "mount", name).strip()), settings, folder)
    finally:
        store.run("buildah", "umount", name)
        store.run("buildah", "rm", name)
