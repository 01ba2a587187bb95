"""Downloads an archive from Cloud Storage or copies it from a volume, and verifies its digest.

With only the standard library, because the init container's image has no storage libraries: one request to the JSON
API of Cloud Storage (cloud.google.com/storage/docs/json_api/v1/objects/get), with the identity that the machine gives
its pods (cloud.google.com/compute/docs/access/authenticate-workloads). The pod holds no token.
"""

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Callable, Mapping, Optional

from tpujob_contract import storage_address
from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.job_code import EMULATOR, MAX_ARCHIVE_BYTES
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.patience import TIMES, Unanswered, asked

ENDPOINT = "https://storage.googleapis.com"
METADATA_HOST = "GCE_METADATA_HOST"
"""Variable with the host of a metadata server that replaces Google's."""
TIMEOUT_SECONDS = 30.0
_TOKEN_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 - a path
_DENIED = (401, 403)
_TOO_MANY_REQUESTS = 429

Token = Callable[[], Optional[str]]


def download(
    archive: str,
    sha256: str,
    target: Path,
    *,
    environ: Mapping[str, str] = os.environ,
    token: Optional[Token] = None,
    times: int = TIMES,
    pause_seconds: float = 1.0,
) -> None:
    """Writes an archive to `target`, and removes the file again if its digest is wrong.

    Args:
        archive: gs://BUCKET/OBJECT, or a path.
        sha256: Digest of its bytes, as 64 hexadecimal digits.
        target: A file that does not exist yet.
        environ: May name an emulator or another metadata server.
        token: Returns an access token, or None to read without one. Default: the machine's metadata server.
        times: Number of tries if storage does not answer.
        pause_seconds: Pause before the second try; doubles with each further one.

    Raises:
        CodeRefused: The archive does not exist, may not be read, is too large, or has another digest.
        OSError: Storage did not answer in any of the tries.
    """

    def ask() -> str:
        try:
            with _opened_archive(archive, environ, token or (lambda: machine_token(environ))) as source:
                return _copy(source, target, archive)
        except urllib.error.HTTPError as error:
            error.close()
            _refuse(archive, error.code)
            raise Unanswered(f"{archive}: {error.code} {error.reason}") from error
        except (urllib.error.URLError, ConnectionError, TimeoutError, http.client.HTTPException) as error:
            raise Unanswered(f"{archive}: {error}") from error

    found = asked(ask, times, pause_seconds=pause_seconds)
    if found != sha256:
        target.unlink()
        raise CodeRefused(
            f"spec.code.sha256: {archive} has digest {found}, and {sha256} is expected; it was changed after it was "
            "submitted: submit the code again"
        )


def machine_token(environ: Mapping[str, str]) -> Optional[str]:
    """An access token of the identity that this machine gives its pods; None: it gives none.

    Raises:
        OSError: The metadata server exists, but answers with an error.
    """
    host = environ.get(METADATA_HOST) or "metadata.google.internal"
    request = urllib.request.Request(f"http://{host}{_TOKEN_PATH}", headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - a fixed address
            return str(json.load(answer)["access_token"])
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.NOT_FOUND:  # a machine without a service account
            return None
        raise
    except urllib.error.URLError:  # no such name: not on Google's machines
        return None
    except (ValueError, LookupError, TypeError) as error:
        raise ConnectionError(f"{request.full_url} answers with no token") from error


def _opened_archive(archive: str, environ: Mapping[str, str], token: Token) -> IO[bytes]:
    if not storage_address.is_bucket(archive):
        return _opened_file(archive)
    emulator = environ.get(EMULATOR)
    access = None if emulator else token()
    return opened(object_url(archive, emulator) + "?alt=media", access, TIMEOUT_SECONDS)


def opened(url: str, token: Optional[str], timeout_seconds: float) -> IO[bytes]:
    """The response of the JSON API to a request for a URL below `endpoint`; with token None, without a token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http or https, by `endpoint`
    answer: IO[bytes] = urllib.request.urlopen(request, timeout=timeout_seconds)  # noqa: S310
    return answer


def object_url(archive: str, emulator: Optional[str] = None) -> str:
    """The URL of a gs:// object in the JSON API."""
    found = storage_address.parse(archive)
    return f"{endpoint(emulator)}/storage/v1/b/{found.bucket}/o/{urllib.parse.quote(found.path, safe='')}"


def endpoint(emulator: Optional[str] = None) -> str:
    """The URL of the JSON API, without a trailing slash."""
    address = ENDPOINT if not emulator else emulator if "://" in emulator else f"http://{emulator}"
    return address.rstrip("/")


def _opened_file(archive: str) -> IO[bytes]:
    try:
        return Path(archive).open("rb")
    except FileNotFoundError as error:
        raise _missing(archive) from error
    except PermissionError as error:
        raise _denied(archive) from error
    except IsADirectoryError as error:
        raise CodeRefused(f"spec.code.archive: {archive} is a folder; name the .tar.gz file") from error


def _copy(source: IO[bytes], target: Path, archive: str) -> str:
    digest = hashlib.sha256()
    left = MAX_ARCHIVE_BYTES
    with target.open("wb") as file:
        while True:
            part = source.read(1 << 20)
            if not part:
                _check_whole(source)
                return digest.hexdigest()
            left -= len(part)
            if left < 0:
                file.close()
                target.unlink()
                raise CodeRefused(
                    f"spec.code.archive: {archive} has more than {MAX_ARCHIVE_BYTES // 1024**2} MiB; "
                    "put data into the bucket, and large packages into an image"
                )
            digest.update(part)
            file.write(part)


def _check_whole(source: IO[bytes]) -> None:
    """Raises IncompleteRead if a response was cut: one that is read in parts ends as if it were complete."""
    missing = getattr(source, "length", None)  # of an http.client.HTTPResponse: bytes still to come
    if missing:
        raise http.client.IncompleteRead(b"", missing)


def _refuse(archive: str, status: int) -> None:
    """Raises CodeRefused for a status that a retry would not change."""
    if status == http.client.NOT_FOUND:
        raise _missing(archive)
    if status in _DENIED:
        raise _denied(archive)
    if 400 <= status < 500 and status != _TOO_MANY_REQUESTS:
        raise CodeRefused(f"spec.code.archive: {archive}: storage answers {status}; check the address")


def _missing(archive: str) -> CodeRefused:
    return CodeRefused(
        f"spec.code.archive: {archive} is not there; submit the code again, or correct the address", ExitCode.NOT_FOUND
    )


def _denied(archive: str) -> CodeRefused:
    return CodeRefused(
        f"spec.code.archive: no permission to read {archive}; let the job's service account read it",
        ExitCode.NOT_FOUND,
    )
