"""YAML that people write, as values of JSON. What its aliases make is bounded before anything is built."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, NodeEvent, ScalarEvent

MOST_ALIASED = 1 << 20
"""Values and characters that the aliases of one text may add: more than the API server keeps of any object."""
MOST_LEVELS = 100
MOST_NUMBER = 1 << 1024
"""JSON's numbers are floats, and Python writes no whole number of more than 4,300 digits."""
MOST_BYTES = 1 << 20
"""Of a file: a job has 64 KiB at most."""


class NotYaml(ValueError):  # noqa: N818 - as people say it
    """The text is not YAML, or makes more than any job needs."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line
        """From 1; None: unknown."""


def text_of(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file that people write; no more is read of a device or a large file by mistake.

    Raises:
        NotYaml: it is larger, or not UTF-8.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise NotYaml(f"is larger than {most_bytes >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotYaml("is not UTF-8 text") from error


def read_yaml(text: str) -> list[Any]:
    """The documents in a text, as kubectl converts them.

    YAML 1.2, as the API server reads it: `20e9` is a whole number, `on` is a word.

    Raises:
        NotYaml: one cannot be read.
    """
    check_aliases(text)
    try:
        with warnings.catch_warnings(action="ignore", category=ReusedAnchorWarning):  # YAML allows it
            return [_as_json(document, MOST_LEVELS) for document in YAML(typ="safe", pure=True).load_all(text)]
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise NotYaml(f"{error.problem}{_advice(str(error.problem))}", line) from error
    except YAMLError as error:
        raise NotYaml(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise NotYaml("blocks and lists are nested too deeply to be read") from error
    except UnicodeError as error:
        advice = "write both halves, or the character"
        raise NotYaml(f"an escape such as \\ud83d is half of a character; {advice}") from error
    except ValueError as error:
        # From ruamel, for text that looks like a date or a number but is not; it does not give the line.
        raise NotYaml(f"a number or a date is wrong ({error}); put values that are text in quotes") from error


def read_value(text: str) -> Any:
    """The one value that a text means; None: it is empty.

    Raises:
        NotYaml: it cannot be read, or has several documents.
    """
    documents = read_yaml(text)
    if len(documents) > 1:
        raise NotYaml("it has several documents")
    return documents[0] if documents else None


_TRUE, _FALSE = "y|Y|yes|Yes|YES|on|On|ON", "n|N|no|No|NO|off|Off|OFF"
_READ_OTHERWISE = (
    (re.compile(_TRUE), "write true, or put it in quotes"),
    (re.compile(_FALSE), "write false, or put it in quotes"),
    (re.compile(r"[-+]?0[0-7_]*[1-7]_*[0-7][0-7_]*"), "write the number without the 0 before it, or put it in quotes"),
    (re.compile(r"[-+]?0[OX][0-9a-fA-F_]+"), "write it in decimal, or put it in quotes"),
    (re.compile(r"\d{4}-\d\d-\d\d|\d{4}-\d\d?-\d\d?[Tt ].*"), "put it in quotes"),
)
"""Values without quotes that differ between YAML 1.1 in kubectl (yaml/go-yaml:v2/resolve.go) and YAML 1.2."""
_MAY_BE_READ_OTHERWISE = re.compile(rf"(?<![\w.])(?:(?:{_TRUE}|{_FALSE})(?![\w.])|[-+]?0[0-7_OX]|\d{{4}}-\d\d?-\d)")


def check_readings(text: str) -> None:
    """Refuses what kubectl would read as another value.

    Raises:
        NotYaml: A value or key without quotes differs between YAML 1.1 and YAML 1.2.
    """
    if not _MAY_BE_READ_OTHERWISE.search(text):
        return
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, ScalarEvent) and event.style is None and event.tag is None:
                for values, advice in _READ_OTHERWISE:
                    if values.fullmatch(event.value):
                        problem = f"{event.value} is read in two ways, by YAML 1.1 (kubectl) and YAML 1.2; {advice}"
                        raise NotYaml(problem, event.start_mark.line + 1)
    except YAMLError:
        return  # its reader has better words


def check_aliases(text: str) -> None:
    """Adds up what the aliases of a text stand for, without building it: a few lines of them can stand for billions.

    Raises:
        NotYaml: that is too much, or an alias stands inside what it names.
    """
    if "*" not in text:
        return
    sizes: dict[str | None, int | None] = {}
    """Of what each anchor names; None: its end is not read yet."""
    starts: list[tuple[str | None, int]] = []
    """Of each open collection: its anchor, and the size of all before it."""
    size = aliased = 0
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, AliasEvent):
                named, line = sizes.get(event.anchor, 0), event.start_mark.line + 1
                if named is None:
                    raise NotYaml(f"an alias (*{event.anchor}) stands inside what it names; write it out", line)
                size, aliased = size + named, aliased + named
                if aliased > MOST_ALIASED:
                    raise NotYaml(f"aliases such as *{event.anchor} make more of it than any job holds", line)
            elif isinstance(event, NodeEvent):
                length = 1 + len(event.value) if isinstance(event, ScalarEvent) else 1
                size += length
                sizes[event.anchor] = length if isinstance(event, ScalarEvent) else None
                if not isinstance(event, ScalarEvent):
                    starts.append((event.anchor, size - length))
            elif isinstance(event, CollectionEndEvent):
                anchor, before = starts.pop()
                sizes[anchor] = size - before
    except YAMLError:
        return  # its reader has better words


def _as_json(value: Any, levels: int) -> Any:
    """A value as kubectl converts it: JSON has one kind of number, in which 4e3 is 4000.

    Raises:
        RecursionError: It is nested more deeply than `levels`.
        ValueError: A number is larger than any float.
        UnicodeDecodeError: Half of a surrogate pair is escaped. JSON escapes both, which YAML reads as two characters.
    """
    if not levels:
        raise RecursionError
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    if isinstance(value, Mapping):
        return {_as_json(key, levels - 1): _as_json(each, levels - 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each, levels - 1) for each in value]
    if isinstance(value, int) and abs(value) >= MOST_NUMBER:
        raise ValueError("a whole number of more than 308 digits")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _advice(problem: str) -> str:
    """Advice for the two most common kinds of mistakes; empty for others."""
    if "block end" in problem or "mapping values are not allowed" in problem or "could not find expected" in problem:
        return "; the line is indented more or less than its neighbours, or has no space after a colon"
    if "\\t" in problem or "cannot start any token" in problem:
        return "; indent with spaces, not tabs, and put values with special characters in quotes"
    return ""
