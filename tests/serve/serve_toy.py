"""What the tests of the service share: a tiny model, and a service of it on a free port for a while."""

import threading
from contextlib import contextmanager

import httpx

import arbormax as am
from arbormax.serve import Settings, create_app
from arbormax.serve.listen import listening
from arbormax.serve.server import server_of

TREE = {"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": ["oak", "rye"]}
TEXTS = [f"{word} {name}ish" for name in ("owl", "hen", "cod", "eel", "oak", "rye") for word in ("the", "a", "an old")]
JSON = {"content-type": "application/json"}


def classifier():
    """A classifier that has learnt that a word of a class tells the class."""
    labels = [text.split()[-1].removesuffix("ish") for text in TEXTS]
    options = {"encoder_options": {"dim": 8, "dropout": 0.0}, "learning_rate": 0.1, "epochs": 4, "validation": 0}
    return am.TextClassifier(am.Taxonomy.from_nested(TREE), accelerator="cpu", **options).fit(TEXTS * 2, labels * 2)


@contextmanager
def served(model, name="toy", **settings):
    """A client of this model's service, which is on a free port while inside; `client.server` can be told to stop."""
    chosen = Settings(**settings)
    app = create_app(model, chosen, name)
    started = threading.Event()
    server = server_of(app, chosen, started.set)
    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert started.wait(20)
            with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=20) as client:
                client.server, client.thread, client.app = server, thread, app
                yield client
        finally:
            server.should_exit = True
            thread.join(30)
    assert not thread.is_alive()


def problem(response, status):
    """The content of an answer that must be a problem, as RFC 9457 has it."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert content["status"] == status
    assert {"type", "title", "detail"} <= content.keys()
    return content


class Gate:
    """A model whose batches wait until it is opened; `sizes` are those of the batches that came."""

    def __init__(self, model, monkeypatch):
        self.open, self.reached, self.sizes = threading.Event(), threading.Event(), []
        real = model.node_log_probs

        def gated(texts, batch_size=256):
            self.sizes.append(len(texts))
            self.reached.set()
            assert self.open.wait(20)
            return real(texts, batch_size)

        monkeypatch.setattr(model, "node_log_probs", gated)
