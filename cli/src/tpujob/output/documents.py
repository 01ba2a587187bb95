"""The output of a command for programs: one JSON or YAML document."""

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TextIO

import typer

from tpujob_contract.storage_address import redacted_values


class OutputFormat(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def show(found: Any, output: OutputFormat, lines: Iterable[str]) -> None:
    """Prints a result: its lines as text, or the result as one document."""
    if output is not OutputFormat.TEXT:
        write(found, output)
        return
    for line in lines:
        typer.echo(line)


def write(value: Any, output: OutputFormat, stream: TextIO | None = None) -> None:
    """Prints a JSON value as one document; TEXT means YAML, for values that have no text form.

    Addresses in it are printed without their queries, which may be signatures.
    """
    stream = stream or sys.stdout
    value = redacted_values(value)
    if output is OutputFormat.JSON:
        stream.write(json.dumps(value, ensure_ascii=False) + "\n")
    else:
        from ruamel.yaml import YAML

        yaml = YAML()
        yaml.default_flow_style = False
        yaml.width = 120
        yaml.dump(value, stream)
    stream.flush()
