"""A tiny model behind the real service, and a browser that looks at its page."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import uvicorn

import arbormax as am
from arbormax.model.network import Model
from arbormax.serve import Settings, create_app

BAD = "<script>document.title = 'run'</script>"
WORSE = "<img src=x onerror=\"document.title = 'run'\">"
TREE = {
    "place": {"built": ["city", "bridge"], "wild": ["river", "peak"]},
    "person": ["singer", "king"],
    BAD: [WORSE, "=1+1"],
}
SAYS = {
    "city": "town city capital streets",
    "bridge": "bridge arch crosses",
    "river": "river flows water",
    "peak": "peak mountain high snow",
    "singer": "singer song voice stage",
    "king": "king crown ruled",
    WORSE: "script tag markup",
    "=1+1": "sum plus formula",
}
EXAMPLES = ("the old city", "king of the river")


@cache
def tiny_model() -> Model:
    """A model of eight classes, two of which have names that a careless page would run."""
    pairs = [(f"{word} {end}", label) for label, words in SAYS.items() for word in words.split() for end in ENDS]
    texts, labels = zip(*pairs, strict=True)
    made = am.TextClassifier(taxonomy=am.Taxonomy.from_nested(TREE), encoder="bag", seed=0, accelerator="cpu")
    return made.fit(texts, labels).model_


ENDS = ("the old one", "what is it", "name of a")


@contextmanager
def serving(model: Model, **settings: Any) -> Iterator[str]:
    """The address of the real service with this model."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(model, Settings(**settings), "tiny")
        config = uvicorn.Config(app, log_config=None, access_log=False, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        until = time.monotonic() + 30
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(30)


class Visit:
    """A page in a profile of its own that keeps what should not have happened."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("console", self._hear)
        self.page.on("request", self._see)
        self.page.on("dialog", lambda dialog: (self.wrong.append("a dialog"), dialog.dismiss()))

    def _hear(self, message: Any) -> None:
        # Chromium tells violations of the policy on the console
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _see(self, request: Any) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.wrong.append(f"request: {request.url}")

    def open(self, fragment: str = "") -> Any:
        self.page.goto(f"{self.address}#{fragment}")
        return self.page

    def close(self) -> None:
        self.context.close()
        assert not self.wrong, self.wrong
