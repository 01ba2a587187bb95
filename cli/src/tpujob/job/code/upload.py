"""Stores a file in a bucket or on a mounted volume, unless it is already there."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode, storage_address
from tpujob_contract.job_code import EMULATOR
from tpujob_contract.whole_file import replaced
from tpujob_launcher.code import download

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
TIMEOUT_SECONDS = 60.0
_EXISTS = 412


def store(data: bytes, address: str) -> bool:
    """Stores an archive under its address; returns False if it was already there.

    Args:
        data: The archive, whose digest is in its name: an existing file has the same content.
        address: gs://BUCKET/OBJECT, or a path.

    Raises:
        CommandError: there is no permission, no such bucket or folder, or no answer.
    """
    return _store_object(data, address) if storage_address.is_bucket(address) else _store_file(data, Path(address))


def access_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """An access token of the user's own credentials for Cloud Storage; None for an emulator.

    Raises:
        CommandError: there are no credentials on this machine.
    """
    if environ.get(EMULATOR):
        return None
    # Imported here: other commands need no credentials.
    import google.auth
    import google.auth.exceptions
    import google.auth.transport.urllib3
    import urllib3

    try:
        credentials, _ = google.auth.default(scopes=[SCOPE])
        request = google.auth.transport.urllib3.Request(urllib3.PoolManager())  # type: ignore[no-untyped-call]
        credentials.refresh(request)  # type: ignore[no-untyped-call]
    except google.auth.exceptions.GoogleAuthError as error:
        raise CommandError(
            f"--code: no credentials for Cloud Storage: {error}; `gcloud auth application-default login` gives some",
            exit_code=ExitCode.NOT_FOUND,
        ) from error
    return str(credentials.token)


def _store_object(data: bytes, address: str) -> bool:
    import urllib3

    place = storage_address.parse(address)
    bucket, name = place.bucket, place.path
    endpoint = download.endpoint(os.environ.get(EMULATOR))
    quoted = quote(name, safe="")
    token = access_token()
    try:
        response = urllib3.PoolManager().request(
            "POST",
            f"{endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=media&ifGenerationMatch=0&name={quoted}",
            body=data,
            headers={"Content-Type": "application/gzip"} | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=TIMEOUT_SECONDS,
        )
    except urllib3.exceptions.HTTPError as error:
        raise CommandError(f"--code: {address} cannot be written: {error}; check the network", exit_code=1) from error
    if response.status in (401, 403):
        raise CommandError(f"--code: no permission to write {address}; take --code-to", exit_code=ExitCode.NOT_FOUND)
    if response.status == 404:
        raise CommandError(f"--code: there is no bucket {bucket}; take --code-to", exit_code=ExitCode.NOT_FOUND)
    if response.status >= 400 and response.status != _EXISTS:
        raise CommandError(f"--code: {address} cannot be written: storage answers {response.status}", exit_code=1)
    return response.status != _EXISTS


def _store_file(data: bytes, path: Path) -> bool:
    if path.exists():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as unfinished:
            unfinished.write_bytes(data)
    except OSError as error:
        raise CommandError(
            f"--code: {path} cannot be written here ({error.strerror}); take --code-to gs://BUCKET/PATH"
        ) from error
    return True
