"""Static embeddings of model2vec as word vectors."""

import sys
from pathlib import Path

import numpy as np
import pytest

from arbormax.data.vectors import WordVectors
from arbormax.encoders import ENCODERS
from arbormax.errors import InputError, MissingDependencyError
from fake_packages import install

safetensors = pytest.importorskip("safetensors.numpy")
tokenizers = pytest.importorskip("tokenizers")

TOKENS = ["[PAD]", "[UNK]", "owl", "mouse", "night", "##s", "##jar", "eel"]
MATRIX = np.arange(2 * len(TOKENS), dtype=np.float32).reshape(-1, 2) - 5
TEXTS = ["owls and mouse", "the mouse", "owls", "mouse owls"]


def save_model(folder: Path, **arrays: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    numbers = {token: number for number, token in enumerate(TOKENS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(1)  # some published tokenizers do this
    tokenizer.save(str(folder / "tokenizer.json"))
    safetensors.save_file(arrays or {"embeddings": MATRIX}, folder / "model.safetensors")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "tiny-8M")


def fit(kind: str, **options: object):
    return ENCODERS[kind].fit(TEXTS, ENCODERS[kind].Options(dropout=0.0, **options))


def test_words_have_the_mean_vector_of_their_subwords(model: Path):
    vectors = WordVectors.load(model, words=["owls", "nightjars", "owl", "xyz", "\ud800", "owls"])
    assert vectors.name == "tiny-8M"
    assert vectors.words == ("owls", "nightjars", "owl", "mouse", "night", "eel")  # then all single tokens
    np.testing.assert_allclose(vectors.matrix[0], MATRIX[[2, 5]].mean(0))
    np.testing.assert_allclose(vectors.matrix[1], MATRIX[[4, 6, 5]].mean(0))
    np.testing.assert_array_equal(vectors.matrix[2:], MATRIX[[2, 3, 4, 7]])


def test_weights_and_shared_vectors_are_applied(tmp_path: Path):
    mapping, weights = np.array([0, 0, 1, 1, 2, 2, 0, 1]), np.linspace(1, 2, 8)
    folder = save_model(tmp_path / "m", embeddings=MATRIX[:3].astype(np.float16), mapping=mapping, weights=weights)
    vectors = WordVectors.load(folder)
    np.testing.assert_allclose(vectors.matrix[vectors.number["mouse"]], MATRIX[1] * weights[3], rtol=1e-3)


def test_an_installed_package_is_named_instead_of_its_folder(model: Path, monkeypatch: pytest.MonkeyPatch):
    files = {f"tiny/_vendor/tiny-8M/{path.name}": path.read_bytes() for path in model.iterdir()}
    site = model.parent / "site"
    site.mkdir()
    install(site, "tiny-vectors", files)
    monkeypatch.syspath_prepend(site)
    assert WordVectors.load("tiny-vectors").words == ("owl", "mouse", "night", "eel")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"embeddings": MATRIX[:4]}, "a vector for each of 8 tokens, found 4"),
        ({"other": MATRIX}, "expected a matrix `embeddings`, found other"),
        ({"embeddings": MATRIX[0]}, "expected a matrix"),
        ({"embeddings": MATRIX * np.nan}, "not finite"),
    ],
)
def test_unusable_embeddings_are_an_error(tmp_path: Path, arrays: dict[str, np.ndarray], told: str):
    with pytest.raises(InputError, match=told):
        WordVectors.load(save_model(tmp_path / "m", **arrays))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_damaged_files_are_an_error(model: Path, name: str):
    for content in (b"", b"{}", b"\xff" * 99):
        (model / name).write_bytes(content)
        with pytest.raises(InputError, match="tiny-8M"):
            WordVectors.load(model)


def test_the_error_about_a_missing_library_names_its_extra(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match="transformers"):
        WordVectors.load(model)


def test_words_of_a_bag_start_from_scaled_vectors_and_everything_else_from_zero(model: Path):
    encoder = fit("bag", vectors=str(model))
    assert encoder.out_features == encoder.options.dim == 2
    number = {word: i for i, word in enumerate(encoder.vocabulary.words)}
    weight = encoder.weight.detach().numpy()
    expected = {"owls": MATRIX[[2, 5]].mean(0), "mouse": MATRIX[3], "night": MATRIX[4], "eel": MATRIX[7]}
    ratio = weight[number["mouse"], 0] / MATRIX[3, 0]
    for word, vector in expected.items():
        np.testing.assert_allclose(weight[number[word]], ratio * vector, rtol=1e-5)
    assert not weight[number["the"]].any()
    assert not weight[len(encoder.vocabulary) :].any()
    assert "night" not in fit("bag", vectors=str(model), kept_words=0).vocabulary


def test_a_saved_bag_needs_no_vectors(model: Path, tmp_path: Path):
    encoder = fit("bag", vectors=str(model))
    encoder.save(tmp_path)
    for path in model.iterdir():
        path.unlink()
    again = type(encoder).load(tmp_path, encoder.options)
    again.load_state_dict(encoder.state_dict())
    rows, before = again.encode(TEXTS), encoder.encode(TEXTS)
    np.testing.assert_array_equal(rows.values, before.values)


def test_words_of_an_lstm_start_from_the_vectors(model: Path):
    encoder = fit("lstm", vectors=str(model), hidden=3)
    table, words = encoder.words.weight.detach().numpy(), encoder.vocabulary.words
    np.testing.assert_allclose(table[words.index("owls")], MATRIX[[2, 5]].mean(0))


def test_a_missing_file_of_vectors_is_an_error(tmp_path: Path):
    with pytest.raises(InputError, match=r"no word vectors at .*nothing-here: it is neither a file, a folder nor"):
        fit("bag", vectors=str(tmp_path / "nothing-here"))
    with pytest.raises(InputError, match=r"no word vectors at nothing-here: .* nor an installed package"):
        fit("bag", vectors="nothing-here")
