"""`tpujob extract status DIRECTORY -o json | python -m tools.extraction_picture FILE`: the live table as SVG.

The picture contains no URL: rich's template fetches its font from another server.
"""

import json
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from tpujob.job.questions.extraction import Facts, screen

WIDTH = 78
TITLE = "tpujob extract status DIRECTORY --watch"
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)


def picture(found: Facts) -> str:
    """The SVG of a status."""
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
    console.print(screen(found))
    drawn = console.export_svg(title=TITLE, theme=SVG_EXPORT_THEME, unique_id="extraction")
    return _COMMENT.sub("", _FONT.sub("", drawn)).replace("Fira Code, monospace", "monospace")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(json.load(sys.stdin)))
