"""Tools of the service's tests: a tiny model, a service on a free port, and a model that waits."""

import threading
from contextlib import contextmanager

import httpx
import uvicorn

import arbormax as am
from arbormax.serve import Settings, create_app
from arbormax.serve.server import bind_socket, create_config

TREE = {"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": ["oak", "rye"]}
TEXTS = [f"{word} {name}ish" for name in ("owl", "hen", "cod", "eel", "oak", "rye") for word in ("the", "a", "an old")]
JSON = {"content-type": "application/json"}


def train_classifier():
    """A classifier that has learnt to recognise a class by one word."""
    labels = [text.split()[-1].removesuffix("ish") for text in TEXTS]
    options = {
        "encoder": "bag",
        "head": "hierarchical",
        "encoder_options": {"dim": 8, "dropout": 0.0},
        "learning_rate": 0.1,
        "epochs": 4,
        "validation": 0,
    }
    return am.TextClassifier(am.Taxonomy.from_nested(TREE), accelerator="cpu", **options).fit(TEXTS * 2, labels * 2)


@contextmanager
def served(model, name="toy", **settings):
    """A client of this model's service on a free port; `client.server`, `.thread` and `.app` belong to the service."""
    settings = Settings(**settings)
    with served_app(create_app(model, settings, name), settings) as client:
        yield client


@contextmanager
def served_app(app, settings):
    """A client of this application on a free port."""
    server = uvicorn.Server(create_config(app, settings))
    with bind_socket("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=20) as client:
                client.server, client.thread, client.app = server, thread, app
                yield client
        finally:
            server.should_exit = True
            thread.join(30)
    assert not thread.is_alive()


def problem(response, status):
    """The content of a response that must be a problem in the format of RFC 9457."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert content["status"] == status
    assert {"type", "title", "detail"} <= content.keys()
    return content


class Gate:
    """Makes the batches of a model wait until `open` is set; `sizes` lists the batches that arrived."""

    def __init__(self, model, monkeypatch):
        self.open, self.reached, self.sizes = threading.Event(), threading.Event(), []
        real = model.features

        def wait_and_compute(texts, batch_size=256):
            self.sizes.append(len(texts))
            self.reached.set()
            assert self.open.wait(20)
            return real(texts, batch_size)

        monkeypatch.setattr(model, "features", wait_and_compute)
