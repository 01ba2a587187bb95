"""`python -m tools.monitoring.runbooks` writes the texts of alerts for installations without runbook URLs.

It copies the steps of each page in docs/runbooks to the chart, which adds them to the descriptions of alerts.
"""

import re
import sys
from pathlib import Path

PAGES = Path("docs/runbooks")
FILE = Path("charts/tpujob-operator/rules/runbooks.yaml")
HEAD = "# What to do about each alert. `make generate` writes it from docs/runbooks.\n"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def written() -> str:
    """The content of the file: the steps of each alert, ordered by name."""
    pages = sorted(page for page in PAGES.glob("*.md") if page.stem != "README")
    return HEAD + "".join(f"{page.stem}: |\n{_indented(steps(page))}" for page in pages)


def steps(page: Path) -> str:
    """The list below the heading "What to do", with links to runbooks as names, and to other pages as paths."""
    text = page.read_text().split("## What to do\n", 1)[1].strip()
    text = _LINK.sub(lambda link: f"docs/{link[2][3:]}" if link[2].startswith("../") else link[1], text)
    return text + "\n"


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


if __name__ == "__main__":
    FILE.write_text(written())
    sys.stdout.write(f"wrote {FILE}\n")
