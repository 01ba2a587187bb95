"""Migrates a file to the newest API version by changing only `apiVersion`: comments, order and quotes stay."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tpujob.errors import CommandError
from tpujob_contract import ExitCode, kubernetes_names


def migrated(text: str) -> str:
    """The text with every TpuTrainingJob of an older API version changed to the newest one.

    Jobs are found anywhere in it: in one of several documents, in a List, in the settings of another tool.

    Raises:
        YAMLError: the text is not YAML.
    """
    places = sorted({place for node in YAML(pure=True).compose_all(text) for place in _places(node)}, reverse=True)
    for start, end in places:
        text = text[:start] + text[start:end].replace(kubernetes_names.API_VERSION, NEWEST) + text[end:]
    return text


NEWEST = kubernetes_names.NEWEST_API_VERSION


def difference(path: Path) -> tuple[str, str]:
    """The migrated text of a file, and a unified diff; both empty if no job in it has an older version.

    Raises:
        CommandError: no such file, or not YAML.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            before = file.read()
        after = migrated(before)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise CommandError(f"{path}: {reason}; name a file of YAML or JSON", exit_code=ExitCode.NOT_FOUND) from error
    except (YAMLError, ValueError, RecursionError) as error:
        advice = f"change {kubernetes_names.API_VERSION} to {NEWEST} by hand, if it is a template"
        raise CommandError(f"{path}: not YAML: {' '.join(str(error).split())}; {advice}") from error
    if before == after:
        return "", ""
    old, new = (_lines(text) for text in (before, after))
    return after, "".join(difflib.unified_diff(old, new, fromfile=str(path), tofile=str(path), n=1))


def _lines(text: str) -> list[str]:
    """The lines of a text as a diff shows them."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


def write(path: Path, text: str) -> None:
    """Overwrites a file with its migrated text.

    Raises:
        CommandError: it cannot be written.
    """
    try:
        # In place, over the longer old text: a full disk cannot destroy the file.
        with path.open("r+", encoding="utf-8", newline="") as file:
            file.write(text)
            file.truncate()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}; nothing was changed") from error


def _places(root: Node) -> Iterator[tuple[int, int]]:
    """The start and end of each older API version of a job in the text, in characters."""
    waiting: list[Node] = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:  # an empty document; an alias
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            waiting += node.value
        elif isinstance(node, MappingNode):
            waiting += [value for _, value in node.value]
            fields = {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
            kind, version = (fields.get(name) for name in ("kind", "apiVersion"))
            if (
                isinstance(kind, ScalarNode)
                and kind.value == kubernetes_names.KIND
                and isinstance(version, ScalarNode)
                and version.value == kubernetes_names.API_VERSION
            ):
                yield version.start_mark.index, version.end_mark.index
