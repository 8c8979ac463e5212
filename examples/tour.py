"""A short tour: load a tree, swap a head into a network, train it, look at probabilities and measures.

The data are generated: every node of the tree has a random direction, an item is the sum of the directions on its
class's path plus noise. Siblings are therefore alike, as in real taxonomies. The network is trained twice from the same
start, once with a flat softmax and once with a softmax per parent.

    python examples/tour.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import arbormax as am

FEATURES = 24


def generate(tax: am.Taxonomy, items: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """(B, D) inputs and (B,) class ids; the directions are the same for every seed."""
    directions = torch.randn(tax.num_nodes, FEATURES, generator=torch.Generator().manual_seed(0))
    directions[0] = 0
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(tax.num_leaves, (items,), generator=generator)
    paths = [[*tax.ancestors(leaf).tolist(), leaf] for leaf in tax.leaves.tolist()]
    centres = torch.stack([directions[path].sum(0) for path in paths])
    return centres[y] + noise * torch.randn(items, FEATURES, generator=generator), y


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> float:
    """Train with the code that any flat classifier has; gives back the seconds it took."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    order = torch.Generator().manual_seed(0)
    start = time.perf_counter()
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order).split(64):
            optimiser.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=600, help="training items (default 600)")
    parser.add_argument("--noise", type=float, default=2.5, help="how hard the task is (default 2.5)")
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()

    print("1. A tree, from a text file with one path per line\n")
    tax = am.Taxonomy.load(Path(__file__).parent / "animals.txt")
    x, y = generate(tax, args.items, args.noise, seed=1)
    test_x, test_y = generate(tax, 4000, args.noise, seed=2)
    print(tax.render(counts=torch.bincount(y, minlength=tax.num_leaves).numpy()))

    print("\n2. A small network; its last nn.Linear is swapped for a head that knows the tree\n")
    nodes = {}
    for kind in ("flat", "hierarchical"):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, tax.num_leaves))
        model = am.replace_head(network, tax, head=kind, keep_rows=False)
        seconds = train(model, x, y, args.epochs)
        model.eval()
        with torch.no_grad():
            nodes[kind] = model[2].node_log_probs(model[:2](test_x))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(f"{kind:>14}: {parameters:,} parameters, trained in {seconds:.1f} s with F.cross_entropy(model(x), y)")

    print("\n3. One test item, step by step\n")
    item = int((nodes["hierarchical"][:, tax.leaves.tolist()].amax(-1)).argsort()[len(test_y) // 4])
    logp = nodes["hierarchical"][item]
    answer = int(am.decode.leaf(logp, tax))
    for node in [*tax.ancestors(answer).tolist()[1:], answer]:
        print(f"   {'  ' * int(tax.node_depth[node])}{tax.names[node]:<12} {logp[node].exp():6.1%}")
    stop = int(am.decode.threshold(logp, tax, tau=0.5))
    truth = tax.classes[int(test_y[item])]
    print(f"   the truth is {truth!r}; at 50 % certainty the answer is {'/'.join(tax.path(stop)) or 'none'!r}")

    print("\n4. Measures on 4,000 new items\n")
    true_nodes = tax.leaves[test_y.numpy()]
    results = {
        kind: am.metrics.evaluate(true_nodes, am.decode.leaf(logp, tax), tax, logp) for kind, logp in nodes.items()
    }
    rows = ("accuracy", "macro_f1", "hf", "tree_distance", "mistake_severity", "operating_curve_area")
    print(f"{'':>24}{'flat':>10}{'hierarchical':>14}")
    for row in rows:
        print(f"{row:>24}{results['flat'][row]:10.4f}{results['hierarchical'][row]:14.4f}")
    print("\nGenerated data and one seed prove nothing; they show the calls. Next: README.md, docs/taxonomy-files.md.")


if __name__ == "__main__":
    main()
