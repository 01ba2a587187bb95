import errno
import socket

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from tpujob_trainer.checkpoint import save
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.values import errors


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def unconnected(kind: type[aiohttp.ClientConnectorError], error: OSError) -> aiohttp.ClientConnectorError:
    """As aiohttp, below gcsfs, says that there is no connection."""
    return kind(ConnectionKey("storage.googleapis.com", 443, True, True, None, None, None), error)


@pytest.mark.parametrize(
    ("error", "refused", "out_of_reach"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), True, True),
        (ValueError("PERMISSION_DENIED: Error writing: HTTP response code: 403"), True, True),
        (ValueError("UNAUTHENTICATED: no token"), True, True),
        (OSError(errno.EROFS, "Read-only file system"), True, True),
        (OSError("Forbidden: https://storage.googleapis.com/b"), True, True),
        (ValueError("UNAVAILABLE: Error reading: HTTP response code: 503"), False, True),
        (ValueError("DEADLINE_EXCEEDED: all 32 attempts failed"), False, True),
        (ConnectionResetError(), False, True),
        (TimeoutError(), False, True),
        (OSError(errno.EIO, "Input/output error"), False, True),
        (MemoryError(), False, True),
        (unconnected(aiohttp.ClientConnectorError, OSError(errno.ENETUNREACH, "Network is unreachable")), False, True),
        (unconnected(aiohttp.ClientConnectorError, OSError(errno.EHOSTUNREACH, "No route to host")), False, True),
        (
            unconnected(aiohttp.ClientConnectorDNSError, socket.gaierror(socket.EAI_AGAIN, "Temporary failure")),
            False,
            True,
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), False, True),
        (ValueError("CURL error Could not resolve hostname: storage.googleapis.com"), False, True),
        (caused(Exception("while reading an array"), ValueError("UNAVAILABLE: 503")), False, True),
        (caused(TimeoutError("waiting"), PermissionError()), True, True),
        (ValueError("NOT_FOUND: Error opening"), False, False),
        (ValueError("DATA_LOSS: Error decoding"), False, False),
        (ValueError('OUT_OF_RANGE: requested 503 of "step/503"'), False, False),
        (FileNotFoundError(errno.ENOENT, "No such file", "/checkpoints/403"), False, False),
        (KeyError("skip_deserialize"), False, False),
        # Words in a path are somebody's own, and say nothing about what happened.
        (ValueError('DATA_LOSS: Error decoding "/data/connection timed out/c/0"'), False, False),
        (OSError("bad checksum in /runs/Forbidden/UNAVAILABLE/3"), False, False),
        (OSError(errno.ENOSPC, "No space left on device", "/runs/connection/3"), False, False),
        (ValueError('UNAVAILABLE: Error reading "gs://b/data loss/3": HTTP response code: 503'), False, True),
        (ValueError('Error reading "3" by HTTP/1.1: HTTP 503 "x"'), False, True),
    ],
    ids=str,
)
def test_damage_is_told_from_storage_out_of_reach(error: Exception, refused: bool, out_of_reach: bool) -> None:
    assert storage_errors.is_refused(error) is refused
    assert storage_errors.is_out_of_reach(error) is out_of_reach


@pytest.mark.parametrize(
    ("error", "message", "brief"),
    [
        (OSError("two\n lines"), "two lines", "OSError: two lines"),
        (MemoryError(), "MemoryError", "MemoryError"),
        (ValueError("NOT_FOUND: x [tensorstore_spec='{}']"), "NOT_FOUND: x", "ValueError: NOT_FOUND: x"),
        (OSError("https://a/b?sig=secret"), "https://a/b?…", "OSError: https://a/b?…"),
        (OSError("x" * 301), "x" * 300, "OSError: " + "x" * 300),
    ],
)
def test_an_error_is_one_line_without_secrets(error: Exception, message: str, brief: str) -> None:
    assert (errors.message(error), errors.brief(error)) == (message, brief)
    assert len(errors.message(OSError("x" * 301), None)) == 301


def test_root_is_what_is_told() -> None:
    assert (
        storage_errors.brief(caused(Exception("somewhere"), OSError("the disk is full"))) == "OSError: the disk is full"
    )


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (FileNotFoundError("http://127.0.0.1:1/upload/storage/v1/b/gone/o"), True),
        (ValueError("NOT_FOUND: Error writing gs://b/steps/12: fault [http_response_code='404']"), True),
        (caused(Exception("while saving"), FileNotFoundError()), True),
        (ValueError("UNAVAILABLE: Error writing gs://b/NOT_FOUND/404"), False),
        (PermissionError(), False),
        (OSError(errno.ENOSPC, "No space left on device", "/NOT_FOUND"), False),
    ],
    ids=str,
)
def test_what_is_not_there_is_known(error: Exception, missing: bool) -> None:
    assert storage_errors.is_missing(error) is missing


@pytest.mark.parametrize(
    ("directory", "error", "refused"),
    [
        ("gs://gone/run", FileNotFoundError("http://127.0.0.1:1/upload/storage/v1/b/gone/o"), True),
        ("gs://gone/run", ValueError("NOT_FOUND: Error writing gs://gone/run/steps/12"), True),
        ("/checkpoints", FileNotFoundError(errno.ENOENT, "No such file", "/checkpoints/steps/12"), False),
        ("gs://bucket/run", ValueError("UNAVAILABLE: 503"), False),
        ("/checkpoints", PermissionError(), True),
    ],
    ids=str,
)
def test_a_save_to_a_bucket_that_is_gone_is_refused(directory: str, error: Exception, refused: bool) -> None:
    """Another attempt would not be taken either: 77, as where any other access finds it gone."""
    assert save._is_refused(directory, error) is refused
