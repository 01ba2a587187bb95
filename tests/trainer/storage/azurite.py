"""Azure Blob Storage on this machine: Azurite, Microsoft's emulator, installed with npm into the cache of the tests."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

VERSION = "azurite@3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every Azurite: learn.microsoft.com/azure/storage/common/storage-use-azurite#connection-strings."""
START_SECONDS = 60
INSTALL_SECONDS = 300


def connection_string(port: int, key: str = KEY) -> str:
    """What adlfs reads from AZURE_STORAGE_CONNECTION_STRING."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
    )


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[int]:
    """The port of an emulator that keeps its blobs in memory; its log goes into a folder."""
    program = _program()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "azurite.log"
    arguments = [
        "node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence",
        "--skipApiVersionCheck", "--disableTelemetry", "--silent",
    ]  # fmt: skip
    with log.open("w") as output:
        process = subprocess.Popen(arguments, cwd=folder, stdout=output, stderr=output)
    try:
        _wait_for(port, process, log)
        yield port
    finally:
        process.kill()
        process.wait()


def _program() -> Path:
    """Azurite's script for blobs; installed once."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("Azurite needs npm")
    cache = Path(os.environ.get("TESTS_CACHE") or Path.home() / ".cache" / "tpujob") / re.sub(r"\W", "-", VERSION)
    program = cache / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: what was ended in the middle would be taken for whole ever after.
        with tempfile.TemporaryDirectory(dir=cache.parent) as place:
            made = Path(place) / "made"
            install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(made)]
            made.mkdir()
            done = subprocess.run(
                [*install, VERSION], capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
            if done.returncode:
                pytest.skip(f"Azurite cannot be installed: {done.stderr[-300:]}")
            with contextlib.suppress(OSError):  # another one was faster
                made.rename(cache)
    return program


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"Azurite does not listen: {log.read_text()}")
