"""Random taxonomies for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from arbormax import Graph, Taxonomy

PLAIN = st.sampled_from(["a", "b", "c", "other", "x y", "D"])
NASTY = st.one_of(
    st.sampled_from(["a/b", r"a\/b", "a", "b", "\\", "/", ";", "a;b", "it's", '"', "''", " lead", "trail ", "a,b"]),
    st.sampled_from(["a\tb", "a\nb", "a\r\nb", "a\rb", "no", "null", "~", "1.0", "- a", "a: b", "#", "(a,b)", "[x]"]),
    st.sampled_from(["é", "日本", "😀", "\ufeffa", "a -1", "root", "clade 1", "{}", "\x00", "\x85a", "a\u2028b"]),
    st.sampled_from(["parent", "level1", "?", "*a", "&a", "!t", "\x7f", "\\n", "a_b", "-1", "'", "a\\"]),
    st.text(min_size=1, max_size=4).filter(lambda name: not name.isspace()),
)


@st.composite
def taxonomies(draw, max_nodes: int = 24, min_nodes: int = 2, names=PLAIN, shuffle: bool = True) -> Taxonomy:
    """Trees of uneven depth with only children, names that repeat under different parents, and any class order."""
    count = draw(st.integers(min_nodes, max_nodes))
    # a wide choice of parents gives bushes, the last few nodes give chains
    reach = draw(st.sampled_from([1, 2, max_nodes]))
    parents = [-1, *(draw(st.integers(max(0, node - reach), node - 1)) for node in range(1, count))]
    labels, taken = ["root"], set()
    for node in range(1, count):
        name = draw(names)
        while (parents[node], name) in taken:
            name += "'"
        taken.add((parents[node], name))
        labels.append(name)
    tax = Taxonomy.from_parents(parents, labels)
    if not shuffle:
        return tax
    order = draw(st.permutations(tax.leaves.tolist()))
    return Taxonomy.from_parents(parents, labels, classes=[tax.path(leaf) for leaf in order])


@st.composite
def graphs(draw, max_nodes: int = 12, min_nodes: int = 2) -> Graph:
    """Small directed acyclic graphs of one root, with up to four parents for each node, and trees among them."""
    count = draw(st.integers(min_nodes, max_nodes))
    most = draw(st.sampled_from([1, 2, 4]))
    parents: list[list[int]] = [[]]
    for node in range(1, count):
        above = st.lists(st.integers(0, node - 1), min_size=1, max_size=min(most, node), unique=True)
        parents.append(draw(above))
    order = draw(st.permutations(range(count)))  # the numbers of the input do not follow the edges
    new = {old: place for place, old in enumerate(order)}
    return Graph.from_parents([[new[parent] for parent in parents[old]] for old in order], [f"n{old}" for old in order])
