"""Tables: grapes of three growers in a tree, from thirteen measurements (scikit-learn's wine data).

    python examples/tabular.py

The tree says that two of the three are alike. Some items are labelled only as far as that branch.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import arbormax as am

TAX = am.Taxonomy.from_nested({"light": ["grower 1", "grower 2"], "dark": ["grower 3"]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--coarse", type=float, default=0.5, help="share labelled by the branch alone (default 0.5)")
    args = parser.parse_args()

    x, y = load_wine(return_X_y=True)
    x, test_x, y, test_y = train_test_split(x, y, test_size=0.5, random_state=0, stratify=y)
    scaler = StandardScaler().fit(x)
    features, test_features = (torch.tensor(scaler.transform(part), dtype=torch.float32) for part in (x, test_x))

    torch.manual_seed(0)
    nodes = torch.from_numpy(TAX.leaves[y])  # targets are nodes: a class, or the branch above it
    coarse = torch.rand(len(nodes)) < args.coarse
    nodes[coarse] = torch.from_numpy(TAX.parent.copy())[nodes[coarse]]
    print(f"{len(nodes)} items to train on, {int(coarse.sum())} of them labelled by their branch alone")

    body = nn.Sequential(nn.Linear(13, 32), nn.ReLU())
    head = am.HierarchicalSoftmax(32, TAX)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.01)
    for _ in range(args.epochs):
        optimiser.zero_grad()
        head.loss(body(features), nodes, target_kind="node").backward()
        optimiser.step()

    with torch.no_grad():
        logp = head.node_log_probs(body(test_features))
    measures = am.metrics.evaluate(TAX.leaves[test_y], am.decode.leaf(logp, TAX), TAX, logp)
    print(f"{len(test_y)} others: " + ", ".join(f"{name} {measures[name]:.3f}" for name in ("accuracy", "hf")))


if __name__ == "__main__":
    main()
