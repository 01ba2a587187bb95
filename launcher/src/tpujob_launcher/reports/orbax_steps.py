"""Finds Orbax's newest checkpoint in a folder on Cloud Storage or in a file system, with the standard library.

Only committed steps count: a save is committed in a file system by its final rename, and on Cloud Storage by the file
commit_success.txt (google/orbax:checkpoint/orbax/checkpoint/_src/path/temporary_paths.py, is_path_finalized).
"""

import datetime
import json
import urllib.error
import urllib.parse
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from tpujob_contract import storage_address
from tpujob_contract.job_code import EMULATOR
from tpujob_launcher.code.download import endpoint, machine_token, object_url, opened

COMMITTED = "commit_success.txt"
TIMEOUT_SECONDS = 10.0


def newest(folder: str, environ: Mapping[str, str]) -> Optional[Tuple[int, float]]:
    """Step and Unix time of the newest committed checkpoint; None: there is none.

    Raises:
        OSError: Storage is unreachable, or refuses.
        HTTPException: Its response was cut, or is invalid.
    """
    return _newest_object(folder, environ) if storage_address.is_bucket(folder) else _newest_folder(Path(folder))


def _newest_folder(folder: Path) -> Optional[Tuple[int, float]]:
    if not folder.is_dir():
        return None
    steps = [entry for entry in folder.iterdir() if entry.name.isdecimal() and entry.is_dir()]
    if not steps:
        return None
    last = max(steps, key=lambda entry: int(entry.name))
    return int(last.name), last.stat().st_mtime


def _newest_object(folder: str, environ: Mapping[str, str]) -> Optional[Tuple[int, float]]:
    emulator = environ.get(EMULATOR)
    token = None if emulator else machine_token(environ)
    for step in sorted(_steps(folder, emulator, token), reverse=True):
        try:
            found = _get(object_url(f"{folder}/{step}/{COMMITTED}", emulator), token)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:  # not committed, or being deleted
                continue
            raise
        return step, datetime.datetime.fromisoformat(found["updated"].replace("Z", "+00:00")).timestamp()
    return None


def _steps(folder: str, emulator: Optional[str], token: Optional[str]) -> List[int]:
    place = storage_address.parse(folder)
    prefix, page, steps = f"{place.path}/", "", []
    while True:
        query = urllib.parse.urlencode({"prefix": prefix, "delimiter": "/", "pageToken": page})
        found = _get(f"{endpoint(emulator)}/storage/v1/b/{place.bucket}/o?{query}", token)
        names = [name[len(prefix) :].strip("/") for name in found.get("prefixes", ())]
        steps += [int(name) for name in names if name.isdecimal()]
        page = found.get("nextPageToken", "")
        if not page:
            return steps


def _get(url: str, token: Optional[str]) -> Dict[str, Any]:
    with opened(url, token, TIMEOUT_SECONDS) as answer:
        found: Dict[str, Any] = json.load(answer)
        return found
