"""What surrounds the processes of one cell: their storage behind doors, a small disk, their names, their memory."""

import contextlib
import dataclasses
import os
import socket
import subprocess
from pathlib import Path

from tests.harness import processes
from tests.multiprocess.storage_proxy import StorageProxy

NAME = "storage.test"
"""Of the machine that the storage is on, where names are a part of the cell."""
DISK_BYTES = 64 << 20
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
MEMORY_BYTES = 64 << 10
"""That the victim of an OOM kill may still take: whatever it does takes more."""


@dataclasses.dataclass
class Scene:
    """The surroundings of one cell, which faults change."""

    folder: Path
    proxy: StorageProxy | None = None
    disk: Path | None = None
    hosts: Path | None = None
    run: processes.Run | None = None
    victim: int = 0
    pid: int = 0
    """Of the victim."""

    def environment(self, process: int) -> dict[str, str]:
        """That makes a process find its storage."""
        if self.proxy is None:
            return {}
        return self.proxy.environment(process, NAME if self.hosts else None)

    def close(self) -> None:
        """Leaves nothing on the machine."""
        if self.proxy is not None:
            self.proxy.close()
        if self.disk is not None:
            subprocess.run(["umount", "--recursive", "--lazy", str(self.disk)], check=False)
        if self._memory_group.exists():
            self._memory_group.rmdir()

    def make_disk(self) -> Path:
        """A small file system of its own."""
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.disk)], check=True)
        return self.disk

    def make_hosts(self) -> Path:
        """A file with the name of the storage's machine."""
        self.hosts = self.folder / "hosts"
        self.know_names(NAME)
        return self.hosts

    def know_names(self, *names: str) -> None:
        """This machine's own, without which JAX does not start, and these; no other."""
        assert self.hosts is not None
        self.hosts.write_text(" ".join(["127.0.0.1", "localhost", socket.gethostname(), *names]) + "\n")

    def fill_disk(self) -> None:
        """Leaves no room at all."""
        assert self.disk is not None
        with contextlib.suppress(OSError), (self.disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(1 << 12)):
                pass

    def empty_disk(self) -> None:
        """There is room again."""
        assert self.disk is not None
        (self.disk / "filler").unlink(missing_ok=True)

    def protect_disk(self) -> None:
        """Whatever is opened from now on can be read only, as after an error of the disk."""
        place = str(self.disk)
        subprocess.run(["mount", "--bind", place, place], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)

    def take_memory(self) -> None:
        """The kernel kills the victim with its next allocations."""
        self._memory_group.mkdir()
        (self._memory_group / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
        (self._memory_group / "cgroup.procs").write_text(str(self.pid))

    @property
    def _memory_group(self) -> Path:
        return MEMORY_GROUPS / f"tpujob-{os.getpid()}-{self.folder.name}"
