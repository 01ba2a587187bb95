"""Buckets for tests: of an emulator of Google Cloud Storage, or real ones."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import fsspec

from tools.localcluster import archive, binaries
from tools.localcluster.network import ADDRESS
from tools.localcluster.plain_http import answers, opened
from tools.localcluster.processes import Process

PROGRAM = "fake-gcs-server"
PORT = 4443
URL = f"http://{ADDRESS}:{PORT}"
BUCKET = "tpujob-test"


def write_image(file: Path) -> str:
    """Writes an image of the emulator, as `docker save` would; returns its name."""
    name = f"tpujob.test/{PROGRAM}:{binaries.PROGRAMS[PROGRAM].version}"
    archive.write_image(file, name, program=binaries.path(PROGRAM), at=f"/{PROGRAM}")
    return name


class Bucket(Protocol):
    """The operations of tests on a bucket."""

    @property
    def name(self) -> str:
        """Its name, without gs://."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables with which pods reach it."""

    def objects(self, prefix: str = "") -> dict[str, int]:
        """The objects whose names start with the prefix, ordered by name, with their sizes in bytes."""

    def read(self, name: str) -> bytes:
        """The content of an object."""

    def write(self, name: str, content: bytes) -> None:
        """Creates or replaces an object."""


def environment(url: str) -> dict[str, str]:
    """Environment variables that point gcsfs and TensorStore to an emulator instead of the real storage."""
    return {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        # Otherwise gcsfs asks Google, by gRPC, for the kind of the bucket: the emulator does not support that call.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


@dataclass(frozen=True)
class EmulatedBucket:
    """A bucket of an emulator; its content ends with the emulator."""

    url: str
    """Of the emulator, as this machine reaches it."""
    name: str = BUCKET
    environment: Mapping[str, str] = field(default_factory=dict)

    def create(self) -> None:
        """Creates the bucket."""
        self._request("POST", "/storage/v1/b?project=test", json.dumps({"name": self.name}).encode())

    def objects(self, prefix: str = "") -> dict[str, int]:
        query = urllib.parse.urlencode({"prefix": prefix, "maxResults": 10000})
        answer = json.loads(self._request("GET", f"/storage/v1/b/{self.name}/o?{query}"))
        return {item["name"]: int(item["size"]) for item in sorted(answer.get("items", []), key=_name)}

    def read(self, name: str) -> bytes:
        return self._request("GET", f"/storage/v1/b/{self.name}/o/{urllib.parse.quote(name, safe='')}?alt=media")

    def write(self, name: str, content: bytes) -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        self._request("POST", f"/upload/storage/v1/b/{self.name}/o?{query}", content, "application/octet-stream")

    def _request(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - the emulator's address
            self.url + path, data=body, method=method, headers={"Content-Type": content_type}
        )
        with opened(request) as answer:
            content: bytes = answer.read()
            return content


@dataclass(frozen=True)
class GoogleBucket:
    """A real bucket, accessed with this machine's Google credentials; pods need their own."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def objects(self, prefix: str = "") -> dict[str, int]:
        files = self._files().find(self.name, prefix=prefix, detail=True)
        return {name.removeprefix(f"{self.name}/"): int(info["size"]) for name, info in sorted(files.items())}

    def read(self, name: str) -> bytes:
        content: bytes = self._files().cat_file(f"{self.name}/{name}")
        return content

    def write(self, name: str, content: bytes) -> None:
        self._files().pipe_file(f"{self.name}/{name}", content)

    def _files(self) -> Any:
        # No caches between calls: other processes write to the bucket.
        return fsspec.filesystem("gs", use_listings_cache=False, skip_instance_cache=True)


OWN = EmulatedBucket(URL, environment=environment(URL))
"""The bucket of the one-machine cluster: on the bridge, so pods and this machine reach it at the same address."""


def start_storage(directory: Path, program: Path) -> Process:
    """Starts the emulator of the one-machine cluster; returns when its bucket exists."""
    flags = ("-scheme=http", "-backend=memory", f"-host={ADDRESS}", f"-port={PORT}", f"-public-host={ADDRESS}:{PORT}")
    process = Process(PROGRAM, [program, *flags], directory / f"{PROGRAM}.log")
    process.wait_until_ready("the storage emulator", lambda: answers(f"{URL}/storage/v1/b?project=test"))
    OWN.create()
    return process


def _name(item: Mapping[str, str]) -> str:
    return item["name"]
