"""The built site in a browser: every page opens, has its title, shows its pictures, and links to pages that exist."""

import contextlib
import functools
import html
import http.server
import json
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpujob_resource.messages.conditions import Reason

ROOT = Path(__file__).parents[2]
VISIT = """<!doctype html><body><script>
const pages = PAGES, found = {};
async function visit(page) {
  const frame = document.createElement("iframe");
  frame.width = 1200;
  frame.height = 800;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = "/" + page;
  document.body.append(frame);
  await loaded;
  const inside = frame.contentDocument;
  for (const image of inside.images) { image.loading = "eager"; try { await image.decode(); } catch (e) {} }
  const wide = {};
  for (const width of [1200, 400]) {
    frame.width = width;
    wide[width] = inside.documentElement.scrollWidth - frame.clientWidth;
  }
  const links = [...inside.links].map(a => a.href.split("#")[0]).filter(a => a.startsWith(location.origin));
  found[page] = {
    title: inside.title,
    headings: inside.querySelectorAll("h1").length,
    broken_images: [...inside.images].filter(i => !i.naturalWidth).map(i => i.src),
    wide,
    links: [...new Set(links)].map(a => decodeURI(new URL(a).pathname.slice(1))),
  };
  frame.remove();
}
(async () => {
  for (const page of pages) await visit(page);
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [str(ROOT / ".venv/bin/mkdocs"), "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environ = {"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Site(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and takes what the browser found."""

    found: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def do_POST(self) -> None:
        self.found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        return


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Site, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "index.html").exists()


def test_the_site_shows_each_reason_sentence_whole(site: Path) -> None:
    """An extension of Markdown may take `{detail}` at the end of a cell for its own."""
    page = (site / "reference" / "conditions.html").read_text()
    shown = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert [reason for reason in Reason if reason.template.replace("`", "") not in shown] == []


@pytest.mark.timeout(360)
def test_every_page_opens_in_a_browser(site: Path, address: str, tmp_path: Path) -> None:
    pages = sorted(str(file.relative_to(site)) for file in site.rglob("*.html") if file.name != "404.html")
    assert len(pages) > 30
    (site / "visit.html").write_text(VISIT.replace("PAGES", json.dumps(pages)))
    with browser(f"{address}/visit.html", tmp_path):
        found = _Site.found.get(timeout=300)
    assert found.keys() == set(pages)
    files = {str(file.relative_to(site)) for file in site.rglob("*") if file.is_file()} | {""}
    for page, seen in found.items():
        assert seen["title"].endswith("tpujob"), page
        assert seen["headings"] == 1, page
        assert seen["broken_images"] == [], page
        assert max(seen["wide"].values()) <= 0, f"{page} is wider than its window by pixels: {seen['wide']}"
        assert set(seen["links"]) - files == set(), page


@contextlib.contextmanager
def browser(address: str, folder: Path) -> Iterator[None]:
    """Chromium at an address, without a window; skips the test where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium (the Debian package chromium)")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    command = [program, *options, f"--user-data-dir={folder / 'profile'}", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
