"""Compute what a hierarchical softmax over a balanced tree needs: memory, bytes and flops, also on several devices.

Nothing is measured and no tree is built. The bytes are a lower bound, where a pass reads each row once however many
items share it; targets are uniform over the classes, which touches the most rows.

    python benchmarks/needs.py --branching 100 216 464 --depth 3 --features 256 --batch 4096 --devices 8
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PRECISIONS = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes of a number
OPTIMISERS = {"sparse-adam": 2, "adagrad": 1, "sgd": 0}  # numbers kept for each parameter, in its precision
NODE = 160  # bytes of a node of a `Taxonomy` with a short name, in the memory of the host; from a tree of 100^3


def distinct(groups: int, batch: int) -> float:
    """Return the expected number of distinct groups of B items in G equally likely groups: G(1 - (1 - 1/G)^B)."""
    if groups == 1:
        return float(batch > 0)
    return -groups * math.expm1(batch * math.log1p(-1 / groups))  # G is large: 1 - 1/G would be rounded


@dataclass(frozen=True)
class Needs:
    """The requirements of one tree, in which every inner node has `branching` children, down to `depth`."""

    branching: int
    depth: int
    features: int
    batch: int
    width: int  # bytes of a number
    states: int  # numbers of the optimiser for each parameter
    devices: int

    @property
    def leaves(self) -> int:
        leaves: int = self.branching**self.depth
        return leaves

    @property
    def rows(self) -> int:
        """The number of rows, one per non-root node."""
        return self.rows_of(1, self.depth)

    def rows_of(self, first: int, last: int) -> int:
        """Return the number of rows of these levels."""
        return sum(self.branching**level for level in range(first, last + 1))

    def touched(self, first: int, last: int) -> float:
        """Return the expected number of rows of these levels in the sibling groups on the paths of a batch."""
        groups = sum(distinct(self.branching ** (level - 1), self.batch) for level in range(first, last + 1))
        return groups * self.branching

    @property
    def row(self) -> int:
        """Bytes of a row and its bias."""
        return (self.features + 1) * self.width

    @property
    def parameters(self) -> int:
        return self.rows * (self.features + 1)

    @property
    def weights(self) -> int:
        return self.rows * self.row

    @property
    def state(self) -> int:
        return self.states * self.weights

    @property
    def sparse_gradient(self) -> float:
        return self.touched(1, self.depth) * (self.row + 8)  # and the index of the row

    @property
    def index(self) -> int:
        """Bytes of the index tensors of the tree on each device: fifteen 64-bit numbers for each node."""
        return 8 * 15 * (self.rows + 1)

    @property
    def cells(self) -> int:
        """The number of dot products of a batch: one for each sibling on each path."""
        return self.batch * self.depth * self.branching

    @property
    def flops(self) -> int:
        """The flops of the logits, which are computed twice, and of two gradients."""
        return 8 * self.cells * self.features

    def moved(self, touched: float, updated: float, items: float) -> float:
        """Bytes of a step: rows for the logits twice; gradient, weights and state of the updated rows read and written.

        Features are read twice, and their gradient written.
        """
        of_features = 3 * items * self.features * self.width
        return (2 * touched + (2 + 2 + 2 * self.states) * updated) * self.row + of_features

    @property
    def sparse_step(self) -> float:
        touched = self.touched(1, self.depth)
        return self.moved(touched, touched, self.batch)

    @property
    def dense_step(self) -> float:
        return self.moved(self.touched(1, self.depth), self.rows, self.batch)

    # ------------------------------------------------------- subtrees on several devices

    @property
    def cut(self) -> int:
        """The level whose subtrees are distributed: the first with at least one node for each device."""
        levels = range(1, self.depth)
        return next((level for level in levels if self.branching**level >= self.devices), max(levels, default=0))

    @property
    def share(self) -> float:
        """The share of subtrees on the device that has the most."""
        subtrees = self.branching**self.cut
        return float(math.ceil(subtrees / self.devices) / subtrees)

    @property
    def shard_rows(self) -> int:
        """The number of rows on a device: the replicated top and its subtrees."""
        return self.rows_of(1, self.cut) + round(self.share * self.rows_of(self.cut + 1, self.depth))

    @property
    def shard_touched(self) -> float:
        return self.touched(1, self.cut) + self.share * self.touched(self.cut + 1, self.depth)

    @property
    def shard_memory(self) -> float:
        memory = self.shard_rows * self.row * (1 + self.states) + self.shard_touched * (self.row + 8)
        return memory + self.index * self.shard_rows / self.rows

    @property
    def shard_step(self) -> float:
        items = (
            self.batch / self.devices + self.batch * self.share
        )  # its own items for the top, and the items of its subtrees
        return self.moved(self.shard_touched, self.shard_touched, items)

    @property
    def sent_features(self) -> float:
        """Bytes that a device sends: features to the owners of their subtrees, and gradients back to the items' own."""
        return 2 * self.batch / self.devices * (1 - 1 / self.devices) * self.features * self.width

    @property
    def sent_top(self) -> float:
        """Bytes that a device sends to sum the gradient of the replicated top, in a ring."""
        return 2 * (1 - 1 / self.devices) * self.rows_of(1, self.cut) * self.row


def _scaled(number: float, units: Sequence[str]) -> str:
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g} {units[power]}"


def lines(all_needs: Sequence[Needs], bandwidth: float, link: float) -> list[tuple[str, list[str]]]:
    """Return the lines of the table: a label and a value for each tree."""

    def counts(of: Callable[[Needs], float]) -> list[str]:
        return [f"{of(needs):,.0f}" for needs in all_needs]

    def sizes(of: Callable[[Needs], float]) -> list[str]:
        return [_scaled(of(needs), ("B", "kB", "MB", "GB", "TB", "PB")) for needs in all_needs]

    def times(of: Callable[[Needs], float], speed: float) -> list[str]:
        return [_scaled(1e6 * of(needs) / speed, ("µs", "ms", "s")) for needs in all_needs]

    def flops(of: Callable[[Needs], float]) -> list[str]:
        return [_scaled(of(needs) / 1e6, ("M", "G", "T", "P", "E")) for needs in all_needs]

    first = all_needs[0]
    rows = [
        ("tree", [f"{n.branching}^{n.depth}" for n in all_needs]),
        ("classes", counts(lambda n: n.leaves)),
        ("rows of the weight", counts(lambda n: n.rows)),
        ("parameters", counts(lambda n: n.parameters)),
        ("", []),
        ("taxonomy, on the host", sizes(lambda n: NODE * (n.rows + 1))),
        ("index of the tree", sizes(lambda n: n.index)),
        ("weights", sizes(lambda n: n.weights)),
        ("state of the optimiser", sizes(lambda n: n.state)),
        ("gradient, dense", sizes(lambda n: n.weights)),
        ("gradient, row-sparse", sizes(lambda n: n.sparse_gradient)),
        ("all scores of a batch, never made", sizes(lambda n: 4 * n.batch * n.leaves)),
        ("", []),
        ("dot products of a step", counts(lambda n: n.cells)),
        ("rows that a step touches", counts(lambda n: n.touched(1, n.depth))),
        ("flops of a step", flops(lambda n: n.flops)),
        ("flops of a flat softmax", flops(lambda n: 6 * n.batch * n.leaves * n.features)),
        ("bytes of a step, dense gradient", sizes(lambda n: n.dense_step)),
        ("  at least", times(lambda n: n.dense_step, bandwidth)),
        ("bytes of a step, row-sparse", sizes(lambda n: n.sparse_step)),
        ("  at least", times(lambda n: n.sparse_step, bandwidth)),
    ]
    if first.devices > 1:
        rows += [
            ("", []),
            (f"on each of {first.devices} devices", []),
            ("  replicated rows", counts(lambda n: n.rows_of(1, n.cut))),
            ("  rows", counts(lambda n: n.shard_rows)),
            ("  weights, state, gradient, index", sizes(lambda n: n.shard_memory)),
            ("  bytes of a step, row-sparse", sizes(lambda n: n.shard_step)),
            ("    at least", times(lambda n: n.shard_step, bandwidth)),
            ("  sent: features, their gradient", sizes(lambda n: n.sent_features)),
            ("  sent: gradient of the top", sizes(lambda n: n.sent_top)),
            ("    at least", times(lambda n: n.sent_features + n.sent_top, link)),
        ]
    return rows


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--branching",
        type=_whole,
        nargs="+",
        default=[100, 216, 464],
        help="children of every inner node; one column each",
    )
    parser.add_argument("--depth", type=_whole, default=3)
    parser.add_argument("--features", type=_whole, default=256)
    parser.add_argument("--batch", type=_whole, default=4096, help="items of a step, on all devices together")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="precision of weights, gradients and state"
    )
    parser.add_argument("--optimiser", choices=OPTIMISERS, default="sparse-adam")
    parser.add_argument("--devices", type=_whole, default=1, help="number of devices that share the subtrees")
    parser.add_argument(
        "--bandwidth", type=_rate, default=4.8e12, help="bandwidth of the memory of a device, bytes per second"
    )
    parser.add_argument(
        "--link", type=_rate, default=4.5e11, help="bandwidth from a device to the others, bytes per second"
    )
    args = parser.parse_args(given)
    all_needs = [
        Needs(
            branching,
            args.depth,
            args.features,
            args.batch,
            PRECISIONS[args.precision],
            OPTIMISERS[args.optimiser],
            args.devices,
        )
        for branching in args.branching
    ]
    for label, values in lines(all_needs, args.bandwidth, args.link):
        print(f"{label:36}{''.join(f'{value:>18}' for value in values)}".rstrip())


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, found {text!r}")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise argparse.ArgumentTypeError(f"expected bytes per second above 0, found {text!r}")
    return rate


if __name__ == "__main__":
    main()
