"""Every example runs, with little data."""

import gzip
import hashlib
import io
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("sys.argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes() + values.tobytes()


@pytest.fixture
def clothes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a small Fashion-MNIST, and an empty data folder."""
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    (tmp_path / "fashion-mnist").mkdir()
    random = np.random.default_rng(0)
    files = {}
    for images, labels, count in ((*NAMES[:2], 200), (*NAMES[2:], 40)):
        y = np.arange(count, dtype=np.uint8) % 10
        x = random.integers(0, 100, (count, 28, 28), dtype=np.uint8)
        x[np.arange(count), 2 * y] = 255  # a bright row for each class
        files |= {images: gzip.compress(idx(x)), labels: gzip.compress(idx(y))}
    return files


def test_every_example_has_a_test():
    text = Path(__file__).read_text("utf-8") + (Path(__file__).parent / "test_docs.py").read_text("utf-8")
    assert not [file.name for file in EXAMPLES.glob("*.py") if f'"{file.name}"' not in text]


def test_plain_torch(capsys, monkeypatch):
    run("plain_torch.py", monkeypatch)
    assert float(capsys.readouterr().out.split()[-1]) > 0.9


@pytest.mark.filterwarnings("ignore")  # Lightning warns about its own calls and about small data
def test_lightning(capsys, monkeypatch):
    pytest.importorskip("pytorch_lightning")
    run("lightning.py", monkeypatch)
    assert float(capsys.readouterr().out.split()[-1]) > 0.9


@pytest.mark.parametrize("name", ["plain_torch.py", "lightning.py"])
def test_the_short_examples_have_about_fifteen_lines(name):
    lines = [line for line in (EXAMPLES / name).read_text("utf-8").split('"""')[2].splitlines() if line.strip()]
    assert sum(not line.startswith(("import ", "from ")) for line in lines) <= 16


def test_text(capsys, monkeypatch):
    pytest.importorskip("pytorch_lightning")
    run("text.py", monkeypatch)
    assert "macro_f1" in capsys.readouterr().out


def test_tabular(capsys, monkeypatch):
    run("tabular.py", monkeypatch, "--epochs", "40")
    printed = capsys.readouterr().out
    assert "labelled by their branch alone" in printed
    assert float(printed.split("accuracy ")[1][:5]) > 0.9


def test_images_of_digits(capsys, monkeypatch):
    run("images.py", monkeypatch, "--items", "100", "--epochs", "1")
    printed = capsys.readouterr().out
    assert "two loops" in printed
    assert "mistake_severity" in printed


def test_images_of_clothes_from_the_data_folder(capsys, monkeypatch, clothes, tmp_path):
    for name, content in clothes.items():
        (tmp_path / "fashion-mnist" / name).write_bytes(content)
    run("images.py", monkeypatch, "--data", "fashion", "--epochs", "15")
    printed = capsys.readouterr().out
    assert "ankle boot" in printed
    accuracy = printed.split("accuracy")[1].split()[:2]
    assert min(map(float, accuracy)) > 0.8


def test_images_of_clothes_are_downloaded_and_verified(capsys, monkeypatch, clothes, tmp_path):
    module = runpy.run_path(str(EXAMPLES / "images.py"), run_name="images")
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: io.BytesIO(clothes[url.rsplit("/", 1)[1]]))
    with pytest.raises(SystemExit, match="not the published file"):
        module["load_fashion"]()
    assert not list((tmp_path / "fashion-mnist").iterdir())
    module["FILES"].update({name: hashlib.md5(content).hexdigest() for name, content in clothes.items()})
    x, y, _, _ = module["load_fashion"]()
    assert x.shape == (200, 1, 28, 28)
    assert y.tolist() == [item % 10 for item in range(200)]
    monkeypatch.setattr("urllib.request.urlopen", None)  # files are downloaded once
    assert torch.equal(module["load_fashion"]()[0], x)


def test_without_a_connection_the_error_names_the_path_of_each_file(monkeypatch, clothes):
    def refuse(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(SystemExit, match=r"no route.*save the file as .*train-images-idx3-ubyte\.gz"):
        run("images.py", monkeypatch, "--data", "fashion")


@pytest.mark.parametrize(
    ("content", "message"), [(b"GIF89a", "not an IDX file"), (idx(np.zeros(9, np.uint8))[:-1], "incomplete")]
)
def test_a_broken_image_file_is_an_error(monkeypatch, clothes, tmp_path, content, message):
    (tmp_path / "fashion-mnist" / NAMES[0]).write_bytes(gzip.compress(content))
    with pytest.raises(SystemExit, match=message):
        run("images.py", monkeypatch, "--data", "fashion")


def test_transformers_trainer(capsys, monkeypatch):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    transformers.utils.logging.disable_progress_bar()
    run("transformers_trainer.py", monkeypatch, "--epochs", "25")
    transformers.utils.logging.enable_progress_bar()
    printed = capsys.readouterr().out
    assert "garden/spade" in printed
