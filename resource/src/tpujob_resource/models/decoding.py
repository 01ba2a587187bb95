"""Decodes objects that other people made: each is judged for itself, so that no object affects the reading of others.

The API server stores values of 9,000 levels in fields without a schema. Parsers, and functions that follow the levels
of a value, end at fewer; and a list is one document, which one such object makes unreadable.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpujob_resource.models.job import prebuilt_workload

MAX_LEVELS = 32
"""Most lists and mappings within each other in a field. Configurations have fewer than ten."""
MAX_SPEC_BYTES = 65536
"""Most bytes of the spec as JSON: it is copied to the JobSet and to every pod, of which there may be thousands."""
MAX_BYTES = {"metadata": 65536, "spec": MAX_SPEC_BYTES, "status": 4 * 65536}
"""Most bytes of the parts of an object as JSON, which the operator keeps for each job; it alone writes status."""
UNREADABLE = "tpujob.dev/unreadable"
"""Key of an object that is too deep or too large, with the problems; the API server stores no such field."""

_DECODED_LEVELS = 64
"""Levels that are decoded: `MAX_LEVELS`, and those of the list and the object around a field."""
_KEPT_BYTES = 4096
"""Largest field that is kept of an object that is too large, such as its name, its phase and its conditions."""
_NEEDLESS_METADATA = ("annotations", "managedFields", "selfLink")
"""Large, and no decision reads them, but for one annotation (`prebuilt_workload`)."""
_TO_NEXT_BRACKET = re.compile(rb'(?:[^][{}"]++|"(?:[^"\\]++|\\.)*+")*+[][{}]', re.DOTALL)


def decoded(document: bytes, loads: Callable[[bytes], Any] = json.loads) -> Any:
    """The value of a JSON document; if a parser refuses its depth, with null for what is below 64 levels.

    Args:
        document: UTF-8.
        loads: The parser.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return loads(document)
    except (ValueError, RecursionError):
        return loads(_cut(document))


def _cut(document: bytes) -> bytes:
    kept, level, start = list[bytes](), 0, 0
    for match in _TO_NEXT_BRACKET.finditer(document):
        end = match.end()
        if document[end - 1] in b"[{":
            if level == _DECODED_LEVELS:
                kept += (document[start : end - 1], b"null")
            level += 1
        else:
            level -= 1
            if level == _DECODED_LEVELS:
                start = end
    return b"".join((*kept, document[start:]))


def readable(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """An object of the API server without needless metadata; without its large and deep fields if it is too large.

    Such an object has its problems under `UNREADABLE`, for which `load_job` refuses it.
    """
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in _NEEDLESS_METADATA}
    annotations = prebuilt_workload(manifest["metadata"])["annotations"]
    whole = {**manifest, "metadata": metadata | ({"annotations": annotations} if annotations else {})}
    problems = {part: list(_problems(part, whole.get(part))) for part in MAX_BYTES}
    if not any(problems.values()):
        return whole
    small = {part: _small(whole[part]) for part in problems if problems[part]}
    return {**whole, **small, UNREADABLE: [problem for each in problems.values() for problem in each]}


def _small(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if not is_deep(value) and json_size(value) <= _KEPT_BYTES}


def _problems(part: str, fields: Any) -> Iterator[str]:
    if not isinstance(fields, Mapping):
        return
    deep = list(depth_problems(part, fields))
    yield from deep
    if not deep:
        yield from size_problems(part, {key: json_size(value) for key, value in fields.items()})


def depth_problems(part: str, fields: Mapping[str, Any]) -> Iterator[str]:
    """A problem for each field that has more than `MAX_LEVELS` levels."""
    for key, value in fields.items():
        if is_deep(value):
            yield (
                f"{part}.{key}: has more than {MAX_LEVELS} lists and mappings within each other; at most "
                f"{MAX_LEVELS}: put data in the image, a ConfigMap or the bucket"
            )


def size_problems(part: str, sizes: Mapping[str, int]) -> Iterator[str]:
    """A problem that names the largest field if a part of an object, by the sizes of its fields, is too large."""
    total = sum(sizes.values())
    if total > MAX_BYTES[part]:
        largest = max(sizes, key=lambda key: sizes[key])
        yield (
            f"{part}.{largest}: the {part} is {total} bytes of JSON, {sizes[largest]} of them here; at most "
            f"{MAX_BYTES[part]}, as {'every pod repeats it' if part == 'spec' else 'it is kept for each job'}: "
            "put data in the image, a ConfigMap or the bucket"
        )


def is_deep(value: Any, levels: int = MAX_LEVELS) -> bool:
    """Whether there are more levels of lists and mappings than these."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list):
        return False
    return levels == 0 or any(is_deep(each, levels - 1) for each in value)


def json_size(value: Any) -> int:
    """Bytes of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass"))
