"""Writes the chart's README from the comments of its values: `python -m tools.chart_readme`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CHART = Path(__file__).parents[1] / "charts" / "tpujob-operator"
PAGE = CHART / "README.md"
HEAD = """\
# tpujob-operator

<!-- Generated from values.yaml by `make generate`. -->

Installs the operator that turns TpuTrainingJob resources into JobSets, with the definition of TpuTrainingJob, its
rights, its admission policy, and, where wanted, monitors, alerts and dashboards. How to get the images: docs/install.md
of the repository.

| value | default | meaning |
|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    rows = _rows((CHART / "values.yaml").read_text())
    return HEAD + "".join(f"| `{path}` | `{json.dumps(default)}` | {meaning} |\n" for path, default, meaning in rows)


def _rows(text: str) -> Iterator[tuple[str, Any, str]]:
    """The path, default and comment of each value that is not a block of other values."""
    values = YAML(typ="safe", pure=True).load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        key = re.match(r"( *)([A-Za-z]+):(.*)$", line)
        if key is None:
            stripped = line.strip()
            comment = [*comment, stripped.removeprefix("#").strip()] if stripped.startswith("#") else []
            continue
        del path[len(key[1]) // 2 :]
        path.append(key[2])
        if key[3].strip():
            yield ".".join(path), _at(values, path), " ".join(comment).replace("|", "\\|")
            comment = []


def _at(values: Any, path: list[str]) -> Any:
    for key in path:
        values = values[key]
    return values


if __name__ == "__main__":
    PAGE.write_text(page())
