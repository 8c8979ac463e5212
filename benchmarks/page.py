"""Time to the first byte and size of the answers that the page of `arbormax serve` loads, on a large tree.

The model is untrained: a bag of words of `--width` numbers and a hierarchical head. One client sends each request
`--turns` times; the table has the median and the largest time, and the size without compression. "start" is the time
from the loaded taxonomy to a service that answers. Rows are appended to benchmarks/results/page.csv.

    python benchmarks/page.py                    # the tree of the dataset inat
    python benchmarks/page.py --dataset icd10cm
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
import uvicorn

from arbormax.data.datasets import load_taxonomy
from arbormax.model import Model, TrainConfig
from arbormax.serve import Settings, create_app
from arbormax.serve.server import bind_socket, create_config
from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "page.csv"
WORDS = ("quercus", "quercus alba", "fusca", "a", "xyzzy")  # few matches, one, many, most names, none


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="inat")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tax = load_taxonomy(args.dataset)
    options = {"dim": args.width, "char_ngrams": 0}
    config = TrainConfig(encoder="bag", encoder_options=options, head="hierarchical", solver="adam")
    start = time.perf_counter()
    model = Model.new(list(tax.names[1:10_001]), tax, config)
    text = tax.names[int(tax.leaves[len(tax.leaves) // 2])]
    with _service(model) as port:
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{tax}: start {seconds:.1f} s, memory {peak:.1f} GiB")
        rows = [{"request": "start", "median_ms": round(1e3 * seconds), "largest_ms": "", "bytes": "", "total": ""}]
        for name, method, path, body in _requests(int(tax.num_children.argmax()), text):
            rows.append({"request": name, **_measure(port, method, path, body, args.turns)})
            print("{request:32}{median_ms:10} ms {largest_ms:10} ms {bytes:10} bytes {total}".format(**rows[-1]))
    known = {"dataset": args.dataset, "classes": tax.num_leaves, "threads": args.threads, "peak_gib": round(peak, 2)}
    append(RESULTS, [{**known, **row, **circumstances("torch")} for row in rows])


def _requests(largest: int, text: str) -> list[tuple[str, str, str, dict[str, Any] | None]]:
    """Name, method, path and body of each request: what the page sends on its views."""
    listed = {"offset": 0, "limit": 200}
    found = [("page", "GET", "/", None), ("model", "GET", "/v1/model", None)]
    for name, node in (("top level", 0), ("largest group", largest)):
        found.append((f"classes: {name}", "GET", f"/v1/taxonomy?{urlencode({'node': node, **listed})}", None))
    last = urlencode({"node": largest, "offset": 3600, "limit": 200})
    found.append(("classes: largest group, scrolled", "GET", f"/v1/taxonomy?{last}", None))
    for words in WORDS:
        found.append((f"search: {words}", "GET", f"/v1/taxonomy?{urlencode({'search': words, 'limit': 50})}", None))
    body = {"text": text, "siblings": 6, "decoder": "leaf"}
    return [*found, ("explain", "POST", "/v1/explain", body), ("predict", "POST", "/v1/predict", {"text": text})]


def _measure(port: int, method: str, path: str, body: dict[str, Any] | None, turns: int) -> dict[str, Any]:
    times, content = [], b""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(turns + 1):
        start = time.perf_counter()
        connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()  # the status line and the headers
        times.append(time.perf_counter() - start)
        content = response.read()
        assert response.status == 200, content
    connection.close()
    total = json.loads(content).get("total", "") if response.headers["content-type"] == "application/json" else ""
    once = times[1:]  # the first request connects
    return {
        "median_ms": round(1e3 * statistics.median(once), 2),
        "largest_ms": round(1e3 * max(once), 2),
        "bytes": len(content),
        "total": total,
    }


@contextmanager
def _service(model: Model) -> Iterator[int]:
    """The port of a service in a thread of this process."""
    settings = Settings(port=0)
    with bind_socket(settings.host, settings.port) as listener:
        server = uvicorn.Server(create_config(create_app(model, settings), settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield int(listener.getsockname()[1])
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
