"""Requests for bytes of one version of an object, which storage refuses if it now holds another version.

Cloud Storage reads a generation, Azure and web servers compare an entity tag or a date. A data set of the Hugging Face
hub is read at a commit.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Coroutine
from typing import Any

import fsspec.asyn

from tpujob_trainer.data.sources.hub import is_hub, url_of

REQUEST_SECONDS = 60.0
"""Time for one range to arrive; then it is requested again."""

type Fetch = Callable[[int, int], bytes]


def version_of(info: dict[str, Any]) -> str:
    """The version of an object, from its entry in a listing; empty: the storage states none."""
    tag = info.get("ETag") or info.get("etag") or ""
    weak = str(tag).startswith("W/")
    found = info.get("generation") or (tag and not weak and tag) or info.get("Last-Modified") or tag
    return str(found or info.get("blob_id") or "")


def fetcher(filesystem: Any, location: str, version: str = "") -> Fetch:
    """A function that requests once the bytes [start, end) of an object, of one version if that is given.

    Asynchronous file systems (gs, az, s3, http) are read with a time limit; the hub without the retries of its own
    client, which do not know of other threads; any other one through a file that it opens.
    """
    if isinstance(filesystem, fsspec.asyn.AsyncFileSystem):
        read = _reading(filesystem, location, version)

        def fetch(start: int, end: int) -> bytes:
            data: bytes = fsspec.asyn.sync(filesystem.loop, read, start, end, timeout=REQUEST_SECONDS)
            return data

        return fetch
    if is_hub(filesystem):
        return functools.partial(_fetch_from_hub, filesystem, location)

    def fetch_by_file(start: int, end: int) -> bytes:
        with filesystem.open(location, "rb", cache_type="none") as file:
            file.seek(start)
            data: bytes = file.read(end - start)
            return data

    return fetch_by_file


def _reading(filesystem: Any, location: str, version: str) -> Callable[[int, int], Coroutine[Any, Any, bytes]]:
    protocols = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol
    options: dict[str, Any] = {}
    if version and "az" in protocols:
        return functools.partial(_read_azure, filesystem, location, version)
    if version and "gs" in protocols:
        options = {"generation": version}
    elif version and "http" in protocols:
        options = {"headers": _condition(version)}

    async def read(start: int, end: int) -> bytes:
        data: bytes = await filesystem._cat_file(location, start=start, end=end, **options)  # noqa: SLF001 - its public form knows no limit
        return data

    return read


def _condition(version: str) -> dict[str, str]:
    """The header of RFC 9110 by which a web server refuses another version."""
    if version.startswith('"'):
        return {"If-Match": version}
    return {} if version.startswith("W/") else {"If-Unmodified-Since": version}


async def _read_azure(filesystem: Any, location: str, version: str, start: int, end: int) -> bytes:
    match: Any = importlib.import_module("azure.core").MatchConditions.IfNotModified
    container, blob, _ = filesystem.split_path(location)
    async with filesystem.service_client.get_blob_client(container=container, blob=blob) as client:
        stream = await client.download_blob(offset=start, length=end - start, etag=version, match_condition=match)
        data: bytes = await stream.readall()
        return data


def _fetch_from_hub(filesystem: Any, location: str, start: int, end: int) -> bytes:
    hub: Any = importlib.import_module("huggingface_hub.utils")
    headers = hub.build_hf_headers(token=filesystem.token) | {"Range": f"bytes={start}-{end - 1}"}
    answer = hub.get_session().get(url_of(filesystem, location), headers=headers, timeout=REQUEST_SECONDS)
    if answer.status_code == 404:
        raise FileNotFoundError(location)
    if answer.status_code in (401, 403):
        raise PermissionError(f"{answer.status_code} {answer.reason_phrase}: {location}")
    hub.hf_raise_for_status(answer)
    data: bytes = answer.content
    return data
