"""The vectors of a spaCy pipeline as word vectors. Keys are those that spaCy prints for these words."""

import json
from pathlib import Path

import numpy as np
import pytest

from arbormax.data.vectors import WordVectors
from arbormax.encoders import ENCODERS
from arbormax.errors import InputError
from fake_packages import install

KEYS = {"coffee": 3197928453018144401, "apple": 8566208034543834098}
MATRIX = np.array([[1, 2, 3], [-4, 5, 9], [0, 7, 2]], np.float32)


def table(rows: dict[int, int]) -> bytes:
    """A MessagePack map; rows above 127 have a byte for their kind."""
    cells = [
        b"\xcf" + key.to_bytes(8, "big") + (bytes([row]) if row < 128 else b"\xcc" + bytes([row]))
        for key, row in rows.items()
    ]
    return b"\xdf" + len(rows).to_bytes(4, "big") + b"".join(cells)


def save(folder: Path, rows: dict[int, int] | None = None, matrix: np.ndarray = MATRIX) -> Path:
    vocab = folder / "vocab"
    vocab.mkdir(parents=True)
    with (vocab / "vectors").open("wb") as file:
        np.save(file, matrix)
    (vocab / "strings.json").write_text(json.dumps(["", "tea", "coffee", "a longer word without a vector", "apple"]))
    (vocab / "key2row").write_bytes(table(rows or {KEYS["coffee"]: 2, KEYS["apple"]: 0}))
    return folder


def test_words_have_the_vector_of_their_key(tmp_path):
    vectors = WordVectors.load(save(tmp_path / "en_tiny-1.0"))
    assert vectors.words == ("apple", "coffee")  # in the order of the rows
    np.testing.assert_allclose(vectors.matrix, MATRIX[[0, 2]] * (0.4 / MATRIX[[0, 2]].std()), rtol=1e-6)
    assert vectors.matrix.std() == pytest.approx(0.4)


def test_words_may_share_a_row_and_the_folder_of_the_vocabulary_is_accepted(tmp_path):
    matrix = np.zeros((200, 3), np.float32)
    matrix[199] = [1, 2, 4]
    folder = save(tmp_path / "en", dict.fromkeys(KEYS.values(), 199), matrix) / "vocab"
    vectors = WordVectors.load(folder)
    assert set(vectors.words) == set(KEYS)
    np.testing.assert_array_equal(vectors.matrix[0], vectors.matrix[1])


def test_an_encoder_starts_from_an_installed_pipeline(tmp_path, monkeypatch):
    folder = save(tmp_path / "en")
    files = {f"tiny_pipeline/en/vocab/{path.name}": path.read_bytes() for path in (folder / "vocab").iterdir()}
    site = tmp_path / "site"
    site.mkdir()
    install(site, "tiny-pipeline", files)
    monkeypatch.syspath_prepend(str(site))
    kind = ENCODERS["bilstm"]
    encoder = kind.fit(["coffee please"], kind.Options(vectors="tiny-pipeline", hidden=4))
    expected = WordVectors.load("tiny-pipeline")
    rows = encoder.words.weight.detach().numpy()
    wanted = expected.matrix[expected.number["coffee"]]
    assert np.isclose(rows, wanted).all(1).sum() == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("key2row", b"\xdf\x00\x00\x00\x09", "cut short"),
        ("key2row", table({KEYS["apple"]: 0})[:-1], "cannot|can be read|cut short"),
        ("key2row", b"\x81\xa1a\x00", "whole numbers"),
        ("key2row", b"[]", "not a MessagePack map"),
        ("key2row", b"", "can be read"),
        ("key2row", table({KEYS["apple"]: 3}), "a row for each word"),
        ("key2row", table({5: 0}), "none of its words"),
        ("strings.json", b"{", "can be read"),
        ("strings.json", b"[1]", "can be read"),
        ("vectors", b"no array", "can be read"),
    ],
)
def test_damaged_files_are_an_error(tmp_path, name, content, message):
    folder = save(tmp_path / "en")
    (folder / "vocab" / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        WordVectors.load(folder)
