"""A page as a reader of its text sees it, and as headless Chromium does."""

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest


class Page(HTMLParser):
    """Its tags, its addresses, and its text; a page with an event handler is refused."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str | None] = []
        self.words = ""
        self.feed(content.decode())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for key, value in attrs if key in ("href", "src", "action", "data")]
        assert not [key for key, _ in attrs if key.startswith("on")]

    def handle_data(self, data):
        self.words += f"{data} "


def in_chromium(address: str, folder: Path, *options: str) -> Page:
    """What a browser makes of a page; skips the test where there is none.

    Args:
        address: Of the page, on this machine.
        folder: For the browser's profile.
        options: More of its options, such as `--screenshot=FILE`.
    """
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no Chromium (the Debian package chromium)")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", profile, *options, "--dump-dom", address]
    return Page(subprocess.run(command, capture_output=True, timeout=600, check=True).stdout)
