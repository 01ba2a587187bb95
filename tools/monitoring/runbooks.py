"""`python -m tools.monitoring.runbooks` writes what the alerts say where runbooks have no address.

The steps of each page in docs/runbooks go into the chart, from where they come into the descriptions of alerts.
"""

import re
import sys
from pathlib import Path

PAGES = Path("docs/runbooks")
FILE = Path("charts/tpujob-operator/rules/runbooks.yaml")
HEAD = "# What to do about each alert. `make generate` writes it from docs/runbooks.\n"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def written() -> str:
    """The content of the file: each alert's steps, in the order of names."""
    pages = sorted(page for page in PAGES.glob("*.md") if page.stem != "README")
    return HEAD + "".join(f"{page.stem}: |\n{_indented(steps(page))}" for page in pages)


def steps(page: Path) -> str:
    """The list below the heading "What to do"; other runbooks by name, other pages by path."""
    text = page.read_text().split("## What to do\n", 1)[1].strip()
    text = _LINK.sub(lambda link: f"docs/{link[2][3:]}" if link[2].startswith("../") else link[1], text)
    return text + "\n"


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


if __name__ == "__main__":
    FILE.write_text(written())
    sys.stdout.write(f"wrote {FILE}\n")
