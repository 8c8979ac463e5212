"""Graphviz text, read back by its own rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Taxonomy
from arbormax.errors import OptionError
from arbormax.report import tree_dot
from arbormax.report.svg import clean
from strategies import NASTY, taxonomies

LINE = re.compile(r'  n(\d+) \[label="((?:[^"\\]|\\.)*)"(?:, \w+=\w+)*\];')
EDGE = re.compile(r"  n(\d+) -> n(\d+);")


def unescaped(label: str) -> str:
    said = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], label)
    return said.replace("&amp;", "&")


def read(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The first row of every label, and the edges; every line is one that the grammar knows."""
    head, *lines = text.splitlines()
    assert head == "digraph taxonomy {"
    assert lines.pop() == "}"
    labels, edges = [], []
    for line in lines[3:]:
        if found := LINE.fullmatch(line):
            assert int(found[1]) == len(labels)
            labels.append(unescaped(found[2]).split("\n")[0])
        else:
            edges.append(tuple(map(int, EDGE.fullmatch(line).groups())))
    return labels, edges


@given(taxonomies(names=NASTY))
def test_every_node_and_edge_is_written(tax):
    labels, edges = read(tree_dot(tax))
    assert len(labels) == tax.num_nodes
    assert len(edges) == tax.num_nodes - 1
    assert sorted(child for _, child in edges) == list(range(1, tax.num_nodes))
    assert sorted(labels) == sorted(clean(name) or "(unnamed)" for name in tax.names)


def test_quotes_backslashes_and_markup_are_text():
    tax = Taxonomy.from_nested({'say "a"': ["back\\slash", "<script>alert(1)</script>", "a\\N", "R&amp;D"]})
    text = tree_dot(tax, 'A "title"')
    assert r'label="say \"a\"\n4"' in text
    assert r'label="back\\slash"' in text
    assert r'label="a\\N"' in text
    assert 'label="<script>alert(1)</script>"' in text  # in quotes it is text; only label=<…> is markup
    assert 'label="R&amp;amp;D"' in text  # Graphviz reads entities
    assert r'label="A \"title\"", labelloc=t' in text


@given(st.integers(1, 40))
def test_a_large_tree_is_folded(rows):
    tax = Taxonomy.from_nested({f"a{i}": [f"x{j}" for j in range(9)] for i in range(9)})
    labels, edges = read(tree_dot(tax, max_leaves=rows))
    parents = {parent for parent, _ in edges}
    assert len(set(range(len(labels))) - parents) <= rows
    with pytest.raises(OptionError, match="max_leaves"):
        tree_dot(tax, max_leaves=0)
