"""Classify short texts into a tree of products: train, ask, measure, save.

The texts are made up from a few words for each product.

    python examples/text.py
"""

from __future__ import annotations

import tempfile
from itertools import product

import arbormax as am

WORDS = {
    "home/kitchen/pan": ["frying pan", "steel wok", "skillet"],
    "home/kitchen/knife": ["chef knife", "bread knife", "cleaver"],
    "home/lamp": ["desk lamp", "light bulb", "lantern"],
    "garden/tools/spade": ["spade", "shovel", "trowel"],
    "garden/tools/hose": ["garden hose", "sprinkler", "water hose"],
    "garden/seeds": ["tomato seeds", "grass seed", "bulbs to plant"],
}
PHRASES = ["buy a {}", "{} for sale", "a new {}", "this {} is great", "my old {} broke", "{}, barely used"]


def main() -> None:
    pairs = [(phrase.format(word), label) for label, words in WORDS.items() for phrase, word in product(PHRASES, words)]
    texts, labels = [text for text, _ in pairs], [label for _, label in pairs]
    train, test = [i for i in range(len(pairs)) if i % 4], range(0, len(pairs), 4)

    clf = am.TextClassifier(seed=0)  # the tree is inferred from the labels, which are paths
    clf.fit([texts[i] for i in train], [labels[i] for i in train])
    print(clf.taxonomy_.render())
    print(f"\n{clf.n_iter_} epochs on {len(train)} texts\n")

    questions = ["a shovel", "bread knife or wok", "something else"]
    probabilities, classes = clf.topk(questions, k=2)
    sure = clf.predict_paths(questions, tau=0.5)
    for text, path, names, shares in zip(questions, sure, classes, probabilities, strict=True):
        best = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, shares, strict=True))
        print(f"{text!r:22} {best:28} more likely than not: {'/'.join(path) or 'nothing'}")

    measures = clf.evaluate([texts[i] for i in test], [labels[i] for i in test])
    print(
        f"\non {len(test)} other texts: " + ", ".join(f"{m} {measures[m]:.3f}" for m in ("accuracy", "macro_f1", "hf"))
    )

    with tempfile.TemporaryDirectory() as folder:
        clf.save(folder, {"test": measures})
        assert (am.TextClassifier.load(folder).predict(texts) == clf.predict(texts)).all()


if __name__ == "__main__":
    main()
