"""The images of the study of heads, with made-up photographs and a small network."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from heads_study import images, jobs
from heads_study.plan import Arm, Job
from PIL import Image
from torch import nn

from arbormax.data.datasets import MissingDataError

LABELS = ["Fruit/Apple/Red", "Fruit/Apple/Green", "Fruit/Lemon", "Packages/Milk"]
COLOURS = [(250, 10, 10), (10, 250, 10), (250, 250, 10), (240, 240, 250)]
CPU = jobs.Machine({}, "cpu")


class Colours(nn.Sequential):
    """The mean colour of an image, as as many features as EfficientNet-Lite0 has."""

    def __init__(self) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1280))


def put_split(folder: Path, name: str, count: int) -> None:
    noise = np.random.default_rng(count)
    rows = []
    for i in range(count):
        pixels = np.clip(np.array(COLOURS[i % 4]) + noise.integers(-40, 40, (20, 30, 3)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        rows.append({"label": LABELS[i % 4], "jpeg": file.getvalue()})
    (folder / "grocery").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "grocery" / f"{name}.parquet")


@pytest.fixture
def photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, count in (("train", 32), ("val", 8), ("test", 12)):
        put_split(tmp_path, name, count)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    monkeypatch.setattr(images, "_network", Colours)
    for function in (images.read_images, images.features, jobs.read, jobs.taxonomy):
        function.cache_clear()
    yield tmp_path
    for function in (images.read_images, images.features, jobs.read, jobs.taxonomy):
        function.cache_clear()


@pytest.mark.parametrize(
    "arm",
    [
        *(Arm("efficientnet", head) for head in ("flat", "hierarchical")),
        Arm("efficientnet", "shared", path=0.3),
        Arm("features", "shared"),
        Arm("svc-images"),
        Arm("knn-images"),
    ],
)
def test_every_kind_of_model_learns_the_colours(photographs, arm):
    record = jobs.run(Job("grocery", arm), CPU)
    assert record["accuracy"] == 1.0
    assert len(jobs.unpack(record["predicted"])) == 12


def test_the_test_split_trains_on_the_validation_split_too(photographs):
    _, train, valid = images.read_images("valid")
    _, both, test = images.read_images("test")
    assert [len(train), len(valid), len(both), len(test)] == [32, 8, 40, 12]
    assert np.array_equal(both.inputs[:32], train.inputs)
    assert np.array_equal(both.inputs[32:], valid.inputs)


def test_missing_photographs_are_an_error_that_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    images.read_images.cache_clear()
    with pytest.raises(MissingDataError, match=r"train\.parquet is missing"):
        images.read_images("test")
