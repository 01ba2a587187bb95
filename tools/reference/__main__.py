"""`python -m tools.reference` writes docs/reference/; with --check it compares, and exits with 1 if they differ."""

import sys
from pathlib import Path

from tools.reference.pages import PAGES

FOLDER = Path("docs/reference")


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, page in PAGES.items():
        file, text = FOLDER / f"{name}.md", page()
        if not file.exists() or file.read_text() != text:
            stale.append(str(file))
            if "--check" not in sys.argv:
                file.write_text(text)
    sys.stdout.write("".join(f"{'differs' if '--check' in sys.argv else 'wrote'} {name}\n" for name in stale))
    return int(bool(stale) and "--check" in sys.argv)


sys.exit(main())
