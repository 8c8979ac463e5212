"""Take the two pictures of the page that the README shows, light and dark, into docs/figures.

ARBORMAX_DATA=DATA arbormax train trec --encoder bag --out MODEL
python docs/tools/screenshots.py MODEL
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from arbormax.model.folder import load_model
from arbormax.serve import Settings, create_app

FIGURES = Path(__file__).parents[1] / "figures"
SIZE = {"width": 1180, "height": 860}
EXAMPLES = ("What does NASA stand for ?", "Who invented the telephone ?", "How far is it to the Moon ?")
QUESTIONS = {
    "light": {"text": "Which team won the game in the largest city of Texas ?", "tau": 0.94},
    "dark": {"text": "What book did the president write about the city of Paris ?", "tau": 0.5, "step": 1},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", type=Path, help="folder of a trained model")
    folder = options.parse_args().model
    app = create_app(load_model(folder), Settings(examples=EXAMPLES), "TREC questions")
    address, stop = _serve(app)
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=_chromium(), args=_arguments())
            for scheme, question in QUESTIONS.items():
                _take(browser, f"{address}#{urlencode(question)}", scheme)
            browser.close()
    finally:
        stop()


def _take(browser: Browser, address: str, scheme: Any) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
    page.goto(address)
    page.wait_for_selector("#words mark")
    page.wait_for_load_state("networkidle")
    page.wait_for_selector("#example-list button", state="attached")
    page.screenshot(path=FIGURES / f"page-{scheme}.png")
    page.close()


def _serve(app: Any) -> tuple[str, Any]:
    """The address of the service in a thread of its own, and what ends it."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join()
        listener.close()

    return f"http://127.0.0.1:{listener.getsockname()[1]}/", stop


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _arguments() -> list[str]:
    return ["--no-sandbox"] if os.geteuid() == 0 else []


if __name__ == "__main__":
    main()
