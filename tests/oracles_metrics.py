"""Decoders and measures the naive way: plain Python over the parents of one node at a time, definitions only.

logp is one row of node log-probabilities as a list of floats; true and pred are lists of node ids.
"""

import math


class Tree:
    """What the oracles know of a taxonomy: the parents, and the node of each class."""

    def __init__(self, tax):
        self.parent = tax.parent.tolist()
        self.leaves = tax.leaves.tolist()
        self.nodes = range(len(self.parent))
        self.children = {node: [n for n in self.nodes if self.parent[n] == node] for node in self.nodes}
        self.depth = max(len(self.above(node)) for node in self.nodes)

    def above(self, node):
        """A(node): the node and its ancestors without the root, from the node up."""
        chain = []
        while node != 0:
            chain.append(node)
            node = self.parent[node]
        return chain

    def level(self, node):
        return len(self.above(node))

    def under(self, node):
        """The leaves at or below a node."""
        return [leaf for leaf in self.leaves if node == 0 or node in self.above(leaf)]

    def lca(self, a, b):
        return next((node for node in self.above(a) if node in self.above(b)), 0)

    def height(self, node):
        return max(self.level(leaf) - self.level(node) for leaf in self.under(node))

    def information(self, node):
        return math.log2(len(self.leaves) / len(self.under(node)))

    def at_level(self, node, level):
        """The node's ancestor (or itself) at a level; None when it stands above."""
        return next((n for n in [*self.above(node), 0] if self.level(n) == level), None)


def leaf(logp, tree):
    return max(tree.leaves, key=lambda node: logp[node])


def greedy(logp, tree):
    node = 0
    while tree.children[node]:
        node = max(tree.children[node], key=lambda child: logp[child])
    return node


def threshold(logp, tree, bar):
    """bar: the logarithm of tau."""
    passing = [node for node in tree.nodes if node and logp[node] > bar]
    if not passing:
        return 0
    deepest = max(tree.level(node) for node in passing)
    return max((node for node in passing if tree.level(node) == deepest), key=lambda node: logp[node])


def expected(logp, tree, node, value):
    """The mean of value(true leaf, node) over the leaves."""
    return sum(math.exp(logp[leaf]) * value(leaf, node) for leaf in tree.leaves)


def item_hf(tree, true, pred, beta=1.0):
    shared = len(set(tree.above(true)) & set(tree.above(pred)))
    p, r = divide(shared, tree.level(pred)), divide(shared, tree.level(true))
    return divide((1 + beta**2) * p * r, beta**2 * p + r)


def distance(tree, true, pred):
    return tree.level(true) + tree.level(pred) - 2 * tree.level(tree.lca(true, pred))


def reward(tree, true, pred, lam):
    return (tree.information(pred) + lam) * (pred == 0 or pred in tree.above(true))


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def divide(part, whole):
    return part / whole if whole else 0.0


def harmonic(p, r):
    return divide(2 * p * r, p + r)


def hierarchical(pairs, tree):
    """hp, hr, hf over (true, pred) pairs."""
    shared = sum(len(set(tree.above(t)) & set(tree.above(p))) for t, p in pairs)
    hp = divide(shared, sum(len(tree.above(p)) for _, p in pairs))
    hr = divide(shared, sum(len(tree.above(t)) for t, _ in pairs))
    return hp, hr, harmonic(hp, hr)


def evaluate(true, pred, tax):
    tree = Tree(tax)
    pairs = list(zip(true, pred, strict=True))
    judged = [(t, p) for t, p in pairs if t in tree.leaves]
    scores = []
    for node in {t for t, _ in judged} | {p for _, p in judged if p in tree.leaves}:
        tp = sum(t == p == node for t, p in judged)
        precision = divide(tp, sum(p == node for _, p in judged))
        recall = divide(tp, sum(t == node for t, _ in judged))
        scores.append((precision, recall, harmonic(precision, recall)))
    per_class = [hierarchical([pair for pair in judged if pair[0] == c], tree) for c in {t for t, _ in judged}]
    hp, hr, hf = hierarchical(pairs, tree)
    wrong = [(t, p) for t, p in pairs if t != p]

    level_accuracy = []
    for level in range(1, tree.depth + 1):
        reach = [(t, p) for t, p in pairs if tree.level(t) >= level]
        same = [tree.at_level(t, level) == tree.at_level(p, level) for t, p in reach]
        level_accuracy.append(mean(same) if reach else None)
    return {
        "accuracy": mean(t == p for t, p in pairs),
        "macro_precision": mean(p for p, _, _ in scores),
        "macro_recall": mean(r for _, r, _ in scores),
        "macro_f1": mean(f for _, _, f in scores),
        "hp": hp,
        "hr": hr,
        "hf": hf,
        "macro_hp": mean(p for p, _, _ in per_class),
        "macro_hr": mean(r for _, r, _ in per_class),
        "macro_hf": mean(f for _, _, f in per_class),
        "level_accuracy": level_accuracy,
        "tree_distance": mean(tree.level(t) + tree.level(p) - 2 * tree.level(tree.lca(t, p)) for t, p in pairs),
        "mistake_severity": mean(tree.height(tree.lca(t, p)) for t, p in wrong),
        "errors": len(wrong),
        "information": mean(tree.information(p) for p in pred),
        "count": len(pairs),
        "leaf_count": len(judged),
    }


def top_classes(logp, tree, k):
    return sorted(range(len(tree.leaves)), key=lambda c: -logp[tree.leaves[c]])[:k]


def hierarchical_distance_at_k(true, ranked, tax):
    tree = Tree(tax)
    return mean(tree.height(tree.lca(t, tree.leaves[c])) for t, row in zip(true, ranked, strict=True) for c in row)


def operating_curve(rows, true, tax, taus):
    tree = Tree(tax)
    correct, specificity = [], []
    for tau in taus:
        bar = math.inf if tau == 1 else math.log(tau) if tau else -math.inf
        pred = [threshold(row, tree, bar) for row in rows]
        correct.append(mean(p == 0 or p in tree.above(t) for t, p in zip(true, pred, strict=True)))
        bits = math.log2(len(tree.leaves))
        specificity.append(mean(tree.information(p) / bits if bits else 1.0 for p in pred))
    points = sorted(zip(specificity, [-tau for tau in taus], correct, strict=True))
    area, x, y = 0.0, 0.0, 1.0
    for right, _, height in points:
        area, x, y = area + (right - x) * (height + y) / 2, right, height
    return correct, specificity, area


def level_calibration_error(rows, true, tax, bins):
    tree = Tree(tax)
    errors = []
    for level in range(1, tree.depth + 1):
        filled = {}
        for row, t in zip(rows, true, strict=True):
            if tree.level(t) < level and t not in tree.leaves:
                continue
            node = max((n for n in tree.nodes if tree.level(n) == level), key=lambda n: row[n])
            confidence = math.exp(row[node])
            bucket = max(math.ceil(confidence * bins), 1)
            filled.setdefault(bucket, []).append((node in tree.above(t), confidence))
        n = sum(len(items) for items in filled.values())
        gaps = [
            len(items) / n * abs(mean(a for a, _ in items) - mean(c for _, c in items)) for items in filled.values()
        ]
        errors.append(sum(gaps) if n else None)
    return errors
