"""The output of a command for programs: one JSON or YAML document."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Any, TextIO

from tpujob_contract.storage_address import redacted_values


class OutputFormat(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


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
