"""Edits of a tree in plain Python, and random edits."""

from __future__ import annotations

import random

from arbormax import Taxonomy


class PlainTree:
    """Nodes by number: those of the taxonomy first, then those that edits make."""

    def __init__(self, tax: Taxonomy) -> None:
        self.old = tax.num_nodes
        self.names = dict(enumerate(tax.names))
        self.parents = dict(enumerate(tax.parent.tolist()))
        self.old_classes = tax.leaves.tolist()
        self.born: list[int] = []

    def children(self, node: int) -> list[int]:
        return [child for child, parent in self.parents.items() if parent == node]

    def path(self, node: int) -> tuple[str, ...]:
        return (*self.path(self.parents[node]), self.names[node]) if node else ()

    def below(self, node: int) -> list[int]:
        return [node, *(deeper for child in self.children(node) for deeper in self.below(child))]

    def drop(self, node: int) -> None:
        for gone in self.below(node):
            del self.parents[gone]

    def new(self, name: str, parent: int) -> None:
        node = len(self.names)
        self.names[node], self.parents[node] = name, parent
        self.born.append(node)

    def classes(self) -> list[int]:
        leaves = {node for node in self.parents if not self.children(node)}
        known = [node for node in self.old_classes if node in leaves]
        return known + [node for node in dict.fromkeys(self.born) if node in leaves and node not in known]


def make_random(edits, tax: Taxonomy, rng: random.Random, count: int) -> PlainTree:
    """Append random edits that are possible, and apply them to a plain tree."""
    tree = PlainTree(tax)
    for step in range(count):
        node = rng.choice([n for n in tree.parents if n])
        inner = [n for n in tree.parents if tree.children(n) or n >= tree.old]
        home, parent, path = rng.choice(inner), tree.parents[node], tree.path(node)
        kind = rng.choice(["add", "remove", "move", "split", "rename"])
        if kind == "add":
            edits.add(f"new{step}", under=tree.path(home))
            tree.new(f"new{step}", home)
        elif kind == "split" and not tree.children(node):
            names = [f"part{step}.{place}" for place in range(rng.randint(1, 3))]
            edits.split(path, names)
            for name in names:
                tree.new(name, node)
        elif kind == "rename":
            edits.rename(path, f"name{step}")
            tree.names[node] = f"name{step}"
        elif kind == "move" and home not in tree.below(node) and home != parent:
            if tree.names[node] in {tree.names[child] for child in tree.children(home)}:
                continue
            edits.move(path, under=tree.path(home), keep_row=rng.random() < 0.2, emptied="class")
            tree.parents[node] = home
            tree.born += [parent] * (not tree.children(parent))
        elif kind == "remove":
            prune, top = rng.random() < 0.5, node
            if prune and parent < tree.old and parent not in tree.old_classes:
                while tree.parents[top] and len(tree.children(tree.parents[top])) == 1:
                    top = tree.parents[top]
            if tree.parents[top] == 0 and len(tree.children(0)) == 1:
                continue
            edits.remove(path, emptied="remove" if prune else "class")
            parent = tree.parents[top]
            tree.drop(top)
            tree.born += [parent] * (not tree.children(parent))
    return tree
