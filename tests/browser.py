"""A real browser for the tests: Debian's Chromium, else Playwright's own; driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def browser() -> Iterator[Any]:
    """A browser with an empty profile."""
    chromium = shutil.which("chromium")  # without it Playwright looks for its own, which tests/prepare.sh installs
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()
