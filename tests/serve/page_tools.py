"""A tiny model behind the real service, and a browser page that records errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any

from serve_tools import served

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.model.network import Model
from arbormax.model.posterior import UNCERTAINTIES, Trained

SCRIPT_MARKUP = "<script>document.title = 'run'</script>"
IMAGE_MARKUP = "<img src=x onerror=\"document.title = 'run'\">"
TREE = {
    "place": {"built": ["city", "bridge"], "wild": ["river", "peak"]},
    "person": ["singer", "king"],
    SCRIPT_MARKUP: [IMAGE_MARKUP, "=1+1"],
}
WORDS = {
    "city": "town city capital streets",
    "bridge": "bridge arch crosses",
    "river": "river flows water",
    "peak": "peak mountain high snow",
    "singer": "singer song voice stage",
    "king": "king crown ruled",
    IMAGE_MARKUP: "script tag markup",
    "=1+1": "sum plus formula",
}
ENDINGS = ("the old one", "what is it", "name of a")
EXAMPLES = ("the old city", "king of the river")


@cache
def tiny_model() -> Model:
    """A model of eight classes; the names of two contain markup or look like a formula."""
    pairs = [(f"{word} {end}", label) for label, words in WORDS.items() for word in words.split() for end in ENDINGS]
    texts, labels = zip(*pairs, strict=True)
    clf = am.TextClassifier(
        taxonomy=am.Taxonomy.from_nested(TREE), encoder="bag", head="hierarchical", seed=0, accelerator="cpu"
    )
    return clf.fit(texts, labels).model_


def uncertain_model() -> Model:
    """The same model with a posterior of Laplace's method, wide enough to be seen."""
    model = deepcopy(tiny_model())  # others use it, too
    kind = UNCERTAINTIES["laplace"]
    labelled = Examples(["a river"], model.taxonomy.leaves[:1])
    model.posterior = kind.fit(Trained(model, labelled), kind.Options(draws=20, precision=50.0))
    return model


@contextmanager
def serving(model: Model, **settings: Any) -> Iterator[str]:
    """The URL of a service with this model."""
    with served(model, "tiny", **settings) as client:
        yield f"{client.base_url}/"


class Visit:
    """A page in its own browser profile; `errors` lists errors, warnings, dialogs and requests to other hosts."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        self.page.on("console", self._record_message)
        self.page.on("request", self._record_request)
        self.page.on("dialog", lambda dialog: (self.errors.append("a dialog"), dialog.dismiss()))

    def _record_message(self, message: Any) -> None:
        # Chromium reports violations of the content security policy on the console
        if message.type in ("error", "warning"):
            self.errors.append(f"console: {message.text}")

    def _record_request(self, request: Any) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.errors.append(f"request: {request.url}")

    def open(self, fragment: str = "") -> Any:
        self.page.goto(f"{self.address}#{fragment}")
        return self.page

    def close(self) -> None:
        self.context.close()
        assert not self.errors, self.errors
