"""A Chromium for the tests of what people look at."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def browsing() -> Iterator[Any]:
    """A Chromium without a window; the tests are skipped where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pages are tested with playwright: pip install playwright"
    )
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("pages are tested in Chromium, and none is installed: apt-get install chromium")
    rooted = hasattr(os, "geteuid") and os.geteuid() == 0
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"] if rooted else [])
        yield browser
        browser.close()
