"""How a valid input is changed: bytes anywhere, and JSON by the values in it. Hypothesis finds the shortest change."""

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

TELLING_BYTES = (b"", b"\0", b"\xff", b"\n", b"{", b'"', b"\x7f" * 8, b"\xff" * 8, b"\0" * 8, b"\x80" + b"\xff" * 7)
MOST_CHANGES = 4
LONG_BYTES, DEEP = 64 << 10, 5000

type Change = Callable[[bytes], bytes]


@st.composite
def changed_bytes(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid content with a few places overwritten, cut out, repeated or filled."""
    content = valid
    for _ in range(draw(st.integers(1, MOST_CHANGES))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 16) | st.integers(0, len(content)))
        kind = draw(st.sampled_from(["overwrite", "cut", "repeat", "insert", "end", "number"]))
        piece = draw(st.sampled_from(TELLING_BYTES) | st.binary(max_size=16))
        if kind == "overwrite":
            content = content[:at] + piece + content[at + len(piece) :]
        elif kind == "cut":
            content = content[:at] + content[at + length :]
        elif kind == "repeat":
            times = draw(st.integers(2, 5) | st.just(1000))
            part = content[at : at + length] * times
            content = content[:at] + part[:LONG_BYTES] + content[at + length :]
        elif kind == "insert":
            content = content[:at] + piece + content[at:]
        elif kind == "end":
            content = content[:at]
        else:
            number = draw(st.integers(-(2**63), 2**64 - 1) | st.sampled_from([1 << 31, 1 << 40, 1 << 62]))
            packed = (number % 2**64).to_bytes(8, draw(st.sampled_from(["little", "big"])))
            size = draw(st.sampled_from([1, 2, 4, 8]))
            content = content[:at] + packed[:size] + content[at + size :]
    return content


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just("9" * 5000)
    | st.sampled_from(
        ["", "../../x", "/etc/passwd", "\0", "\ud800", "nan", "1e400", "a" * 3000, -1, 2**63, 2**200, 1e308, -0.0]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def changed_json(draw: st.DrawFn, valid: Any) -> bytes:
    """A valid value with some of the values in it replaced, left out or added, as JSON; or nested without end."""
    if draw(st.integers(0, 40)) == 40:
        return draw(st.sampled_from([b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP]))
    value = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, MOST_CHANGES))):
        places = list(_places(value))
        holder, key = draw(st.sampled_from(places)) if places else (None, None)
        kind = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if holder is None:
            value = draw(VALUES)
        elif kind == "replace":
            holder[key] = draw(VALUES)
        elif kind == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.text(max_size=8))] = draw(VALUES)
        else:
            holder.insert(key, draw(VALUES))
    return json.dumps(value).encode()


def _places(value: Any) -> Sequence[tuple[Any, Any]]:
    """Every place that holds a value, as its container and the key there."""
    if isinstance(value, dict):
        keys: Sequence[Any] = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    else:
        return []
    found = [(value, key) for key in keys]
    return found + [place for key in keys for place in _places(value[key])]
