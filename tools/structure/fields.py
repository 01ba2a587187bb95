"""Fields of a job that neither an example nor a page shows.

A field is shown by YAML that sets it, in `examples/` or in a code block of a page, or by a page that names it in code.
A page may show a part of a job, or name the end of a path: that counts if only one field has this ending. The generated
reference does not count.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tpujob_contract.corpus_tasks import CORPUS_TASKS

Path_of_field = tuple[str, ...]

CRD = Path("charts/tpujob-operator/crd/tputrainingjobs.yaml")
REFERENCE = "docs/reference"


def fields_without_example(root: Path) -> list[str]:
    """The paths below `spec` that no example and no page shows, with dots."""
    fields = list(fields_of(crd_spec(root)))
    shown = {field for mention in mentions(root) for field in named_by(mention, fields)}
    return [".".join(field) for field in fields if shown.isdisjoint(same_fields(field, fields))]


SAME: dict[Path_of_field, Path_of_field] = {
    ("trainer", "evaluation", "data"): ("trainer", "data"),
    ("trainer", "data", "mixture"): ("trainer", "data"),
    **{("trainer", task): ("trainer", "extract") for task in CORPUS_TASKS if task != "extract"},
}
"""Blocks that repeat the fields of another block, which pages show once."""


def same_fields(field: Path_of_field, fields: list[Path_of_field]) -> Iterator[Path_of_field]:
    """A field, and the fields of other blocks with the same name and meaning."""
    yield field
    for block, other in SAME.items():
        inside = field[len(block) :]
        if inside and field[: len(block)] == block and (*other, *inside) in fields:
            yield from same_fields((*other, *inside), fields)


def crd_spec(root: Path) -> dict[str, Any]:
    """The schema of `spec` in the CRD."""
    version = YAML(typ="safe").load(root / CRD)["spec"]["versions"][0]
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def fields_of(schema: dict[str, Any], at: Path_of_field = ()) -> Iterator[Path_of_field]:
    """All paths below a schema; items of a list have the path of the list."""
    for name, field in schema.get("properties", {}).items():
        yield (*at, name)
        yield from fields_of(field, (*at, name))
    for inside in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inside, dict):
            yield from fields_of(inside, at)


def named_by(mention: Path_of_field, fields: list[Path_of_field]) -> list[Path_of_field]:
    """The field that a path names: from `spec`, from `spec.trainer`, or as the ending of a single path; or none."""
    whole = mention[1:] if mention[:1] == ("spec",) else mention
    for path in (whole, ("trainer", *whole)) if whole else ():
        if path in fields:
            return [path]
    ends = [field for field in fields if field[-len(whole) :] == whole] if whole else []
    return ends if len(ends) == 1 else []


def mentions(root: Path) -> Iterator[Path_of_field]:
    """The paths that examples and pages set or name."""
    for example in sorted((root / "examples").rglob("*.yaml")):
        yield from paths_in_yaml(example.read_text())
    pages = [root / "README.md", *(root / "examples").rglob("*.md"), *(root / "docs").rglob("*.md")]
    for page in sorted(pages):
        if not page.relative_to(root).as_posix().startswith(REFERENCE):
            yield from mentions_of_page(page.read_text())


def mentions_of_page(text: str) -> Iterator[Path_of_field]:
    """The paths that the code blocks of a page set, and that its inline code names."""
    for block in yaml_blocks(text):
        yield from paths_in_yaml(block)
    for code in re.findall(r"`([A-Za-z][\w.]*)(?:: ?[^`\n]*)?`", text):
        yield tuple(code.split("."))


def yaml_blocks(text: str) -> Iterator[str]:
    """The fenced blocks of YAML and the indented blocks of a page."""
    for indent, block in re.findall(r"^( *)```ya?ml\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        yield "\n".join(line.removeprefix(indent) for line in block.splitlines())
    outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"(?:\A|(?<=\n\n))(?: {4}.*\n?)+", outside):
        yield textwrap.dedent(block)


def paths_in_yaml(text: str) -> Iterator[Path_of_field]:
    """The paths that YAML documents set; none if the text is not YAML."""
    try:
        documents = list(YAML(typ="safe").load_all(text))
    except YAMLError:
        return
    for document in documents:
        yield from paths_in(document)


def paths_in(value: object, at: Path_of_field = ()) -> Iterator[Path_of_field]:
    if isinstance(value, dict):
        for name, inside in value.items():
            yield (*at, str(name))
            yield from paths_in(inside, (*at, str(name)))
    elif isinstance(value, list):
        for inside in value:
            yield from paths_in(inside, at)
