"""A Chromium browser for the tests of web pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def open_browser() -> Iterator[Any]:
    """A Chromium without a window; skips the tests if none is installed."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="tests of web pages need Playwright: pip install playwright"
    )
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("tests of web pages need Chromium: apt-get install chromium")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"] if is_root else [])
        yield browser
        browser.close()
