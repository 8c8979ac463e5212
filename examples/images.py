"""Images: a small CNN with a flat and with a hierarchical softmax, from the same initial weights.

    python examples/images.py                    # scikit-learn's digits: 8x8 pixels, nothing to download
    python examples/images.py --data fashion     # Fashion-MNIST in a tree of three levels

The files of Fashion-MNIST are read from `fashion-mnist` in ARBORMAX_DATA, by default the cache folder. Missing ones are
downloaded: 31 MB, MIT licence, from github.com/zalandoresearch/fashion-mnist.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
import urllib.request
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import arbormax as am

ADDRESS = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
FILES = {  # with the MD5 sums that their authors publish
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
# classes= keeps the order of the labels in the files
CLOTHES = am.Taxonomy.from_nested(
    {
        "clothing": {
            "upper body": ["t-shirt", "pullover", "coat", "shirt"],
            "lower body": ["trouser"],
            "whole body": ["dress"],
        },
        "footwear": {"open": ["sandal"], "closed": ["sneaker", "ankle boot"]},
        "accessory": {"carried": ["bag"]},
    },
    classes=["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"],
)
# digits grouped by their strokes
DIGITS = am.Taxonomy.from_nested(
    {
        "with a loop": {"one loop": ["0", "6", "9"], "two loops": ["8"]},
        "without": {"straight": ["1", "4", "7"], "curved": ["2", "3", "5"]},
    },
    classes=[str(digit) for digit in range(10)],
)


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file, compressed or not: two zeros, type, number of dimensions, sizes, values."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        sys.exit(f"{path} is not an IDX file of bytes")
    sizes = np.frombuffer(content, ">i4", count=content[3], offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if len(values) != sizes.prod():
        sys.exit(f"{path} is incomplete: found {len(values)} values, expected {' x '.join(map(str, sizes))}")
    return values.reshape(sizes)


def find_file(name: str) -> Path:
    """The path of a file in the data folder; a missing file is downloaded and verified."""
    path = am.data.data_root() / "fashion-mnist" / name
    if (unpacked := path.with_suffix("")).is_file():
        return unpacked
    if not path.is_file():
        print(f"downloading {name} …")
        try:
            with urllib.request.urlopen(ADDRESS + name, timeout=60) as response:  # noqa: S310 - an https address
                content = response.read()
        except OSError as error:
            sys.exit(f"cannot download {ADDRESS}{name} ({error}); save the file as {path}")
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != FILES[name]:
            sys.exit(f"{ADDRESS}{name} is not the published file: its MD5 sum differs")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{name}.part")
        part.write_bytes(content)
        part.replace(path)
    return path


def load_fashion() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(B, 1, 28, 28) images and (B,) class ids for training, and the same for testing."""
    x, y, test_x, test_y = (torch.from_numpy(read_idx(find_file(name)).copy()) for name in FILES)
    return x.unsqueeze(1) / 255, y.long(), test_x.unsqueeze(1) / 255, test_y.long()


def load_digit_images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    return x[:1200], y[:1200], x[1200:], y[1200:]


def build_network(pixels: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * (pixels // 4) ** 2, 64), nn.ReLU()),
        nn.Linear(64, classes),
    )


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    order = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order).split(64):
            optimiser.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=["digits", "fashion"], default="digits")
    parser.add_argument("--items", type=int, help="number of training images (default: all)")
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()

    tax = CLOTHES if args.data == "fashion" else DIGITS
    x, y, test_x, test_y = load_fashion() if args.data == "fashion" else load_digit_images()
    x, y = x[: args.items], y[: args.items]
    print(f"{len(x)} training images, {len(test_x)} test images\n\n{tax.render()}\n")

    results = {}
    for kind in ("flat", "hierarchical"):
        torch.manual_seed(0)
        model = am.replace_head(build_network(x.shape[-1], tax.num_leaves), tax, kind, keep_rows=False)
        train(model, x, y, args.epochs)
        with torch.no_grad():
            leaves = torch.cat([model(part) for part in test_x.split(1000)])
        logp = am.functional.flat_node_log_probs(leaves, tax)  # log-probabilities of all nodes
        results[kind] = am.metrics.evaluate(tax.leaves[test_y.numpy()], am.decode.leaf(logp, tax), tax, logp)
    print(f"{'':>18}{'flat':>10}{'hierarchical':>14}")
    for name in ("accuracy", "macro_f1", "hf", "mistake_severity"):
        print(f"{name:>18}{results['flat'][name]:10.4f}{results['hierarchical'][name]:14.4f}")
    print("\nThis is one seed: compare several before you decide.")


if __name__ == "__main__":
    main()
