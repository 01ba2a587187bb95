"""A bucket of an emulator of Google Cloud Storage, seen over its HTTP interface and without our libraries."""

import contextlib
import json
import logging
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.localcluster import binaries
from tools.localcluster.plain_http import answers, opened
from tools.localcluster.processes import Process, free_ports

logger = logging.getLogger(__name__)

EMULATOR = "fake-gcs-server"


def build_emulator() -> None:
    """Builds the emulator's program, if it is not built yet.

    Raises:
        ToolsUnavailable: It cannot be built on this machine.
    """
    binaries.build_all(logger.info, names=(EMULATOR,))


@dataclass(frozen=True)
class Bucket:
    """One bucket."""

    url: str
    """Of the emulator."""
    name: str

    @property
    def environment(self) -> dict[str, str]:
        """By these gcsfs and TensorStore find the emulator in place of the real one."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "EPATH_USE_TF": "false",
            # gcsfs asks for the bucket's type otherwise, over an interface that the emulator has not.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    def create(self) -> None:
        """Makes the bucket."""
        self._request(
            "POST", "/storage/v1/b?project=test", json.dumps({"name": self.name}).encode(), "application/json"
        )

    def objects(self, prefix: str) -> list[str]:
        """Names that begin so."""
        query = urllib.parse.urlencode({"prefix": prefix, "maxResults": 10000})
        answer = json.loads(self._request("GET", f"/storage/v1/b/{self.name}/o?{query}"))
        return sorted(item["name"] for item in answer.get("items", []))

    def read(self, name: str) -> bytes:
        """The content of an object."""
        return self._request("GET", f"/storage/v1/b/{self.name}/o/{urllib.parse.quote(name, safe='')}?alt=media")

    def write(self, name: str, content: bytes) -> None:
        """Makes an object, or replaces it."""
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        self._request("POST", f"/upload/storage/v1/b/{self.name}/o?{query}", content, "application/octet-stream")

    def delete(self, name: str) -> None:
        """Removes an object."""
        self._request("DELETE", f"/storage/v1/b/{self.name}/o/{urllib.parse.quote(name, safe='')}")

    def _request(self, method: str, path: str, body: bytes | None = None, content_type: str | None = None) -> bytes:
        headers = {"Content-Type": content_type} if content_type else {}
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=headers)  # noqa: S310
        with opened(request) as answer:
            content: bytes = answer.read()
            return content


@contextlib.contextmanager
def emulated_bucket(name: str, folder: Path) -> Iterator[Bucket]:
    """A new bucket in an emulator of its own, which keeps all objects in memory and its log in a folder.

    Raises:
        ToolsUnavailable: The emulator cannot be built on this machine.
    """
    build_emulator()
    (port,) = free_ports(1)
    where = f"127.0.0.1:{port}"
    flags = ("-scheme=http", "-backend=memory", "-host=127.0.0.1", f"-port={port}", f"-public-host={where}")
    emulator = Process(EMULATOR, [binaries.path(EMULATOR), *flags], folder / "log")
    try:
        bucket = Bucket(f"http://{where}", name)
        emulator.wait_until_ready("the storage emulator", lambda: answers(f"{bucket.url}/storage/v1/b?project=test"))
        bucket.create()
        yield bucket
    finally:
        emulator.stop()
