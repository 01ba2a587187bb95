"""The pins of a requirements file of pip's. Pure.

All else that pip accepts there is refused: other indexes and files, addresses, folders and options such as
`--no-binary`, which takes precedence over the command line, and with which pip runs a source archive's code.
"""

import re
from typing import List

_COMMENT = re.compile(r"(^|[ \t])#.*")
_PIN = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]*\])? ?== ?[A-Za-z0-9][A-Za-z0-9._+!-]*"
    r"( ?;[A-Za-z0-9_.()<>=!~'\", *+-]+)?"
)
"""Name, extras, version and marker: no `@`, and no `$`, with which pip begins a variable's name."""
_HASH = re.compile("sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")


def read_pins(text: str) -> List[str]:
    """Each requirement of a file, on a line of its own.

    Raises:
        ValueError: A line has something else than a name, a version, a marker and hashes.
    """
    lines = "\n".join(_COMMENT.sub("", line) for line in text.splitlines()).replace("\\\n", " ").splitlines()
    return [_pin(" ".join(line.split())) for line in lines if line.strip()]


def _pin(line: str) -> str:
    pin, *hashes = re.split(" --hash[= ]", line)
    # Words that begin with `-` are options to pip, also within a marker.
    if not _PIN.fullmatch(pin) or " -" in pin or not hashes or not all(map(_HASH.fullmatch, hashes)):
        raise ValueError(
            f"{line[:120]!r} is not NAME==VERSION --hash=sha256:...; allowed are versions, markers and hashes, as `uv "
            "pip compile --generate-hashes requirements.in` writes them; an index is named by PIP_INDEX_URL in spec.env"
        )
    return " ".join([pin, *(f"--hash={each}" for each in hashes)])
