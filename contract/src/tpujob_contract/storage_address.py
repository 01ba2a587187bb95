"""Addresses of storage: the kinds of storage, the parts of an address, and how to print it without secrets.

To add a kind of bucket, add a row to `BACKENDS` and the package that opens it.
"""

import dataclasses
import re
from typing import Any, Iterator, Mapping, Tuple

BUCKET_NAME = r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
"""Pattern of the name of a Cloud Storage bucket: cloud.google.com/storage/docs/buckets#naming."""


@dataclasses.dataclass(frozen=True)
class Backend:
    """A kind of storage."""

    scheme: str
    """The part before `://`."""
    name: str
    """Its name in messages."""
    has_buckets: bool = True
    """The first part of an address is a bucket or a container, not a host."""
    holds_checkpoints: bool = False
    """TensorStore can write arrays there, and the trainer has conditional writes for it."""
    has_queries: bool = False
    """The part after a question mark is a query; with other kinds it is part of a pattern."""
    extra: str = ""
    """The extra of `tpujob-trainer` that installs the package for it; empty: the trainer itself includes it."""


_ROWS = (
    Backend("gs", "Google Cloud Storage", holds_checkpoints=True),
    Backend("az", "Azure Blob Storage", extra="azure"),
    Backend("hf", "the Hugging Face hub", has_buckets=False),
    Backend("https", "a web server", has_buckets=False, has_queries=True),
    Backend("http", "a web server", has_buckets=False, has_queries=True),
    Backend("file", "a mounted file system", has_buckets=False, holds_checkpoints=True),
)
BACKENDS: Mapping[str, Backend] = {backend.scheme: backend for backend in _ROWS}
"""By scheme. Data is read from other kinds, too, if their fsspec package is installed."""

CHECKPOINT_BUCKET = "|".join(row.scheme for row in _ROWS if row.has_buckets and row.holds_checkpoints)
"""Pattern of the schemes of buckets that hold checkpoints and archives of code."""
PATTERN_IN_BUCKET = rf"^({CHECKPOINT_BUCKET})://.*[*?\[\]#]"
NO_PATTERN = "has *, ?, [, ] or #, which libraries for buckets take for a pattern or the end of a name"
"""About an address that matches `PATTERN_IN_BUCKET`, as a directory to write to and to delete in."""
CUT = "…"
"""Replaces a secret."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_IN_TEXT = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://([^\s\"'<>`\\]+)")
_USER = re.compile(r"^[^/?#]*@")
_QUERY = re.compile(r"[?#].*$", re.DOTALL)
_KEY_AND_VALUE = re.compile(r"\?[^/=\s]+=")


@dataclasses.dataclass(frozen=True)
class StorageAddress:
    """The parts of an address. `str` of it has no secrets."""

    scheme: str
    """Empty for a path."""
    bucket: str
    """The bucket, container or host; empty for a path."""
    path: str
    """The part after the bucket and its slash; for a path, all of it."""
    query: str = dataclasses.field(default="", repr=False)
    """With its question mark; empty if there is none. It may be a signature: never store or print it."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}" if self.scheme else self.path


def parse(address: str) -> StorageAddress:
    """The parts of an address or path.

    Raises:
        ValueError: The address contains a user or a password.
    """
    scheme = scheme_of(address)
    if not scheme:
        return StorageAddress("", "", address)
    problem = credentials_problem(address)
    if problem:
        raise ValueError(problem)
    rest = address[len(scheme) + 3 :]
    found = _QUERY.search(rest) if _has_query(scheme, rest) else None
    query = found[0] if found else ""
    bucket, _, path = rest[: len(rest) - len(query)].partition("/")
    return StorageAddress(scheme, bucket, path, query)


def scheme_of(address: str) -> str:
    """The scheme in lower case, such as `gs` for `gs://bucket/path`; empty for a path."""
    found = _SCHEME.match(address)
    return found[1].lower() if found else ""


def is_path(address: str) -> bool:
    """Whether an address is a path on a mounted file system, without a scheme."""
    return "://" not in address


def is_bucket(address: str) -> bool:
    """Whether an address is in a bucket of Google Cloud Storage."""
    return scheme_of(address) == "gs"


def credentials_problem(address: str) -> str:
    """An error message about an address that contains a user or a password; empty if it contains none.

    The message does not repeat them.
    """
    scheme = scheme_of(address)
    if not scheme or not _USER.match(address[len(scheme) + 3 :]):
        return ""
    return (
        f"{redacted(address)!r} holds a user or a password, which logs and checkpoints would keep; leave them out, and "
        "give the pods an identity that may read it, or mount a copy"
    )


def credentials_problems(block: Any, field: str = "") -> Iterator[str]:
    """An error message for each address with a user or a password in a block of settings; it starts with the path."""
    if isinstance(block, str):
        problem = credentials_problem(block)
        if problem:
            yield f"{field}: {problem}"
    elif isinstance(block, Mapping):
        for key, value in block.items():
            yield from credentials_problems(value, f"{field}.{key}" if field else str(key))
    elif isinstance(block, (list, tuple)):
        for at, value in enumerate(block):
            yield from credentials_problems(value, f"{field}[{at}]")


def redacted(text: str) -> str:
    """The text, such as a message or a log line, with users, passwords and queries of addresses removed."""
    return _IN_TEXT.sub(_redact, text) if "://" in text else text


def redacted_values(value: Any) -> Any:
    """Settings as JSON values, with each string `redacted`."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redacted_values(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted_values(each) for each in value]
    return value


def without_query(address: str) -> Tuple[str, str]:
    """An address without its query, and the query."""
    scheme = scheme_of(address)
    if not scheme or not _has_query(scheme, address):
        return address, ""
    found = _QUERY.search(address)
    query = found[0] if found else ""
    return address[: len(address) - len(query)], query


def _has_query(scheme: str, rest: str) -> bool:
    """Whether a question mark starts a query: in a web address, or if a key and a value follow it."""
    backend = BACKENDS.get(scheme.lower())
    return (backend is not None and backend.has_queries) or _KEY_AND_VALUE.search(rest) is not None


def _redact(found: re.Match[str]) -> str:
    start, rest = found[0][: -len(found[2])], found[2]
    at = _USER.match(rest)
    if at:
        rest = f"{CUT}@{rest[at.end() :]}"
    if _has_query(found[1], rest):
        query = _QUERY.search(rest)
        if query:
            rest = f"{rest[: query.start()]}{query[0][0]}{CUT}"
    return start + rest
