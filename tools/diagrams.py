"""Draws docs/diagrams/*.mmd as docs/images/*.svg, so that the site needs no script from another server.

    python -m tools.diagrams

Needs npm and Chromium. A drawing carries the hash of its source; a test compares the two.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "docs" / "diagrams"
DRAWINGS = ROOT / "docs" / "images"
CACHE = ROOT / ".cache" / "mermaid"
MERMAID = "mermaid@11.17.2"
SETTINGS = """{startOnLoad: false, theme: "neutral", htmlLabels: false, flowchart: {htmlLabels: false}}"""
LIMIT_SECONDS = 120


def stamp_of(source: Path) -> str:
    """The comment at the beginning of the drawing of this source."""
    return f"<!-- {source.name} {hashlib.sha256(source.read_bytes()).hexdigest()} -->"


def main() -> int:
    """Draws all diagrams; returns the exit status."""
    browser = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None or shutil.which("npm") is None:
        sys.stderr.write("diagrams need npm and Chromium\n")
        return 1
    CACHE.mkdir(parents=True, exist_ok=True)
    script = CACHE / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
    if not script.exists():
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", MERMAID]
        subprocess.run(install, cwd=CACHE, check=True, timeout=LIMIT_SECONDS)
    for source in sorted(SOURCES.glob("*.mmd")):
        drawing = _draw(source, browser)
        (DRAWINGS / f"{source.stem}.svg").write_text(f"{stamp_of(source)}\n{drawing}\n")
    return 0


def _draw(source: Path, browser: str) -> str:
    page = CACHE / f"{source.stem}.html"
    text = source.read_text().replace("&", "&amp;").replace("<", "&lt;")
    page.write_text(
        f"""<meta charset="utf-8"><script src="node_modules/mermaid/dist/mermaid.min.js"></script>
<pre id="source">{text}</pre><div id="drawing"></div><script>
mermaid.initialize({SETTINGS});
mermaid.render("diagram", document.getElementById("source").textContent).then(
  made => {{ document.getElementById("drawing").innerHTML = made.svg; }});
</script>"""
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [browser, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS
    )
    found = re.search(r'<div id="drawing">(<svg.*?</svg>)</div>', done.stdout, re.DOTALL)
    if found is None:
        raise RuntimeError(f"{source} was not drawn: {done.stderr[-500:]}")
    # A standalone SVG is XML, where a line break needs `/`; the background is white, for dark pages.
    svg = re.sub(r"<br>", "<br/>", found.group(1))
    return (
        svg.replace("<svg ", '<svg style="background: white" ', 1)
        if "style=" not in svg[:300]
        else re.sub(r'style="', 'style="background: white; ', svg, count=1)
    )


if __name__ == "__main__":
    sys.exit(main())
