"""An emulator of Google Cloud Storage on the bridge, with one bucket; what it holds ends with it."""

import json
import urllib.parse
import urllib.request
from pathlib import Path

from tests.cluster.names import answers
from tests.cluster.network import ADDRESS
from tests.cluster.processes import Process

PORT = 4443
URL = f"http://{ADDRESS}:{PORT}"
BUCKET = "tpujob-test"

ENVIRONMENT = {"STORAGE_EMULATOR_HOST": URL, "TENSORSTORE_GCS_HTTP_URL": URL}
"""By these gcsfs and TensorStore find it instead of the real one."""


def start_storage(directory: Path, program: Path) -> Process:
    """Returns when the bucket is there."""
    flags = ("-scheme=http", "-backend=memory", f"-host={ADDRESS}", f"-port={PORT}", f"-public-host={ADDRESS}:{PORT}")
    process = Process("fake-gcs-server", [program, *flags], directory / "fake-gcs-server.log")
    process.wait_until_ready("the storage emulator", lambda: answers(f"{URL}/storage/v1/b?project=test"))
    _request("POST", "/storage/v1/b?project=test", json.dumps({"name": BUCKET}).encode(), "application/json")
    return process


def objects(prefix: str = "") -> list[str]:
    """Names of the bucket's objects that begin so."""
    query = urllib.parse.urlencode({"prefix": prefix, "maxResults": 10000})
    answer = json.loads(_request("GET", f"/storage/v1/b/{BUCKET}/o?{query}"))
    return sorted(item["name"] for item in answer.get("items", []))


def read(name: str) -> bytes:
    """The content of an object."""
    return _request("GET", f"/storage/v1/b/{BUCKET}/o/{urllib.parse.quote(name, safe='')}?alt=media")


def write(name: str, content: bytes) -> None:
    """Makes an object, or replaces it."""
    query = urllib.parse.urlencode({"uploadType": "media", "name": name})
    _request("POST", f"/upload/storage/v1/b/{BUCKET}/o?{query}", content, "application/octet-stream")


def _request(method: str, path: str, body: bytes | None = None, content_type: str | None = None) -> bytes:
    headers = {"Content-Type": content_type} if content_type else {}
    request = urllib.request.Request(URL + path, data=body, method=method, headers=headers)  # noqa: S310 - the bridge's
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        content: bytes = answer.read()
        return content
