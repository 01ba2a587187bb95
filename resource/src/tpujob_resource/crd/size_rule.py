"""The API server's rule for the size of a spec: an estimate, because only the operator counts the bytes."""

from __future__ import annotations

from tpujob_resource.crd.cel import Rule, rule
from tpujob_resource.models.decoding import MAX_SPEC_BYTES


def size_rule() -> Rule:
    """A rule for `spec` that limits the characters of its long lists."""
    return rule(
        f"{' + '.join(_length(field) for field in ('command', 'args', 'env'))} <= {MAX_SPEC_BYTES}",
        f"command, args and values of env have more than {MAX_SPEC_BYTES} characters, and every pod repeats them: "
        "put data in the image, a ConfigMap or the bucket",
    )


def _length(field: str) -> str:
    """A CEL expression for the number of characters in a list of strings, or in the values of variables."""
    value = "has(x.value) ? size(x.value) : 0" if field == "env" else "size(x)"
    return f"(has(self.{field}) ? self.{field}.map(x, {value}).sum() : 0)"
