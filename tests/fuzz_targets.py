"""Every reader of untrusted bytes, for `test_fuzz.py` (a short run) and `benchmarks/fuzz.py` (a long one).

A new reader is one line in `make_targets`. A reader returns anything or raises an `ArbormaxError` with a message.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
from pyarrow import parquet
from starlette.testclient import TestClient

import arbormax as am
from arbormax.data import WordVectors, read_table
from arbormax.data.matrices import iter_features
from arbormax.errors import ArbormaxError
from arbormax.model import Model, load_model, read_metrics, save_model
from arbormax.taxonomy.formats import FORMATS
from toy import TREE, examples, settings

ROWS = [("an owlish text", "animal/bird/owl"), ('a "quoted", text', "plant/oak"), ("lines\nand\ttabs", "plant/rye")]
SLOW = ("parquet", "xlsx")
TOKENS = [
    *(b'"', b"'", b"\\", b"\n", b"\r", b"\r\n", b"\t", b",", b";", b"/", b" > ", b"\0", b"\xff", b"\xef\xbb\xbf"),
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b"(",
        b")",
        b":",
        b"-",
        b"- ",
        b"? ",
        b"&a ",
        b"*a",
        b"!!python/object:os.system ",
        b"<<: ",
    ),
    *(b"null", b"true", b"NaN", b"Infinity", b"-1", b"0", b"1e999", b"9" * 30, b"9" * 5000, b'""', b"[]", b"{}"),
    *(b"parent", b"child", b"level1", b"path", b"nodes", b"version", b"text", b"texts", b"tau", b"root", b"\xf0\x9f"),
]


@dataclass(frozen=True)
class Target:
    """A reader, and valid inputs that are changed."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]
    weight: int = 1  # share of the cases of a long run


def check(target: Target, data: bytes) -> bool:
    """Read the data; whether it is valid. Raises anything that is not an `ArbormaxError` with a message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(data)
    except ArbormaxError as error:
        message = str(error)
    else:
        return True
    assert message.strip(), "an error without a message"
    assert len(message) < 100_000, "an error that quotes the whole input"
    return False


def mutate(draw: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    """A seed with a few bytes, slices or tokens changed, or now and then random bytes."""
    data = bytearray(draw.choice(seeds)) if draw.random() < 0.98 else bytearray(draw.randbytes(draw.randrange(64)))
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        start, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 4, 16, 64))
        kind = draw.randrange(7)
        if kind == 0 and start < len(data):
            data[start] ^= 1 << draw.randrange(8)
        elif kind == 1 and start < len(data):
            data[start] = draw.randrange(256)
        elif kind == 2:
            del data[start : start + length]
        elif kind == 3:
            data[start:start] = draw.choice(TOKENS)
        elif kind == 4:
            data[start : start + length] = draw.choice(TOKENS)
        elif kind == 5:
            other = draw.choice(seeds)
            at = draw.randrange(len(other) + 1)
            data[start:start] = other[at : at + length * 4]
        else:
            del data[start:]
    return bytes(data)


def file_target(
    name: str, folder: Path, file: str, seeds: list[bytes], read: Callable[[Path], object], weight: int = 50
):
    """A target that reads one file."""
    (folder / name).mkdir(parents=True)
    path = folder / name / file

    def read_bytes(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return Target(name, tuple(seeds), read_bytes, weight)


def make_targets(folder: Path) -> list[Target]:
    """All targets, with their files in this folder."""
    tables = {
        "csv": _csv(","),
        "tsv": _csv("\t"),
        "jsonl": "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS).encode(),
        "parquet": _parquet(),
        "xlsx": _workbook([("text", "label"), *ROWS]),
    }
    targets = [_taxonomy(folder, name) for name in FORMATS]
    targets += [
        file_target(f"table {name}", folder, f"x.{name}", [seed], _read_table, 5 if name in SLOW else 50)
        for name, seed in tables.items()
    ]
    vectors = b"the 0.1 0.2 0.3\nowl -1 2e-2 3\nmouse 4 5 6\n"
    numbers = b"label,a,b\nowl,1,2\nhen,3,4.5\n"
    texts = b"code,title,description\nowl,Owl,hunts\nhen,Hen,lays\n"
    for target in (
        ("table gzip", "x.csv.gz", [gzip.compress(_csv(","))], _read_table, 10),
        ("vectors text", "x.txt", [vectors, b"3 3\n" + vectors], WordVectors.load),
        (
            "vectors zip",
            "x.zip",
            [_zip(method, vectors) for method in range(15) if method in (0, 8, 12, 14)],
            WordVectors.load,
            10,
        ),
        ("vectors npz", "x.npz", [_npz()], WordVectors.load, 10),
        ("features csv", "x.csv", [numbers], lambda path: list(iter_features(path, 2, None, "label")), 15),
        ("features npz", "f.npz", [_features()], lambda path: list(iter_features(path, 2, None, "label")), 10),
        ("texts csv", "x.csv", [texts], TREE.with_texts),
        ("texts json", "x.json", [b'{"owl": "hunts", "hen": "lays"}'], TREE.with_texts),
    ):
        targets.append(file_target(target[0], folder, *target[1:]))
    return [*targets, *_model_targets(folder), *_http_targets()]


def _taxonomy(folder: Path, name: str) -> Target:
    """A registered format, with several taxonomies as that format writes them."""
    suffix = FORMATS[name].suffixes[0]
    trees = [TREE, am.Taxonomy.from_nested({"a": ["x", {"b": ["y", "z"]}], "w v": ["it's"]})]
    if suffix == ".xlsx":
        seeds = [_workbook([("parent", "child"), ("", "a"), ("a", "b"), ("a", "c")])]
    else:
        seeds = [next(iter(FORMATS[name].write(tree))).encode() for tree in trees]
    if name == "csv":
        seeds.append(b"parent,child\n,a\na,b\na,c\n")
    return file_target(
        f"taxonomy {name}",
        folder,
        f"x{suffix}",
        seeds,
        lambda path: am.Taxonomy.load(path, format=name),
        5 if name in SLOW else 100,
    )


def _read_table(path: Path) -> object:
    return read_table(path, on_bad_rows="skip")


def _csv(mark: str) -> bytes:
    quoted = ['"' + text.replace('"', '""') + '"' + mark + label for text, label in ROWS]
    return "\n".join([f"text{mark}label", *quoted, ""]).encode()


def _parquet() -> bytes:
    out = io.BytesIO()
    columns = {"text": [text for text, _ in ROWS], "label": [label.split("/") for _, label in ROWS]}
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def _workbook(rows: list[tuple[str, str]]) -> bytes:
    out, book = io.BytesIO(), openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def _zip(method: int, content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("glove.3d.txt", content)
    return out.getvalue()


def _npz() -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, words=np.array(b"a\nb"), vectors=np.ones((2, 3), np.float32))
    return out.getvalue()


def _features() -> bytes:
    out = io.BytesIO()
    np.savez(out, X=np.ones((2, 2)), y=np.array(["owl", "hen"]))
    return out.getvalue()


def _model_targets(folder: Path) -> list[Target]:
    """Every file of a model folder, with a digest that matches it, and the record itself."""
    model = Model.new(examples(30).inputs, TREE, settings(encoder_options={"dim": 2}).resolved())
    saved = save_model(model, folder / "model", {"test": {"accuracy": 0.5, "items": 3}})
    record = saved / "config.json"
    files = {path.name: path.read_bytes() for path in saved.iterdir() if path.name not in ("README.md", "metrics.json")}

    def read(name: str) -> Callable[[bytes], object]:
        def read_bytes(data: bytes) -> object:
            for other, content in files.items():
                (saved / other).write_bytes(content)
            (saved / name).write_bytes(data)
            if name != record.name:
                changed = json.loads(files[record.name])
                changed["files"][name] = hashlib.sha256(data).hexdigest()
                record.write_text(json.dumps(changed))
            return load_model(saved)

        return read_bytes

    targets = [Target(f"model {name}", (content,), read(name)) for name, content in files.items()]
    metrics = (saved / "metrics.json").read_bytes()
    targets.append(
        file_target("model metrics", folder, "metrics.json", [metrics], lambda path: read_metrics(path.parent))
    )
    return targets


def _http_targets() -> list[Target]:
    """Bodies of requests; any answer below 500 is a result."""
    from arbormax.serve import create_app

    model = Model.new(examples(30).inputs, TREE, settings(encoder_options={"dim": 2}).resolved()).eval()
    client = TestClient(create_app(model), base_url="http://localhost").__enter__()

    def post(path: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            response = client.post(path, content=data, headers={"content-type": "application/json"})
            assert response.status_code < 500, response.text
            assert response.json()
            return response

        return read

    predict = [
        b'{"text": "an owlish text", "top_k": 3}',
        b'{"texts": ["a", "b"], "within": [["animal"], null], "decoder": "threshold", "tau": 0.5}',
        b'{"text": "a", "decoder": "optimal", "metric": "hf", "without": ["plant/oak"]}',
        b'{"text": "a", "decoder": "beam", "k": 2}',
    ]
    explain = [b'{"text": "an owlish text", "siblings": 3, "words": true, "node": 2, "tau": 0.7}']
    return [
        Target("http predict", tuple(predict), post("/v1/predict")),
        Target("http explain", tuple(explain), post("/v1/explain")),
    ]
