"""Conversion from and to the trees of networkx and anytree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arbormax.errors import TaxonomyError, import_extra
from arbormax.taxonomy._build import DESCRIPTION
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.labels import listing

if TYPE_CHECKING:
    import anytree
    import networkx

    from arbormax.taxonomy.tree import Taxonomy


def read_networkx(graph: networkx.DiGraph) -> Draft:
    nx = _package("networkx")
    if not isinstance(graph, nx.Graph):
        raise TaxonomyError(f"expected a networkx graph, found {type(graph).__name__}")
    if not graph.is_directed():
        raise TaxonomyError("the graph is undirected; a taxonomy needs a DiGraph whose edges run from parent to child")
    keys = list(graph.nodes)
    number = {key: index for index, key in enumerate(keys)}
    draft = Draft([str(graph.nodes[key].get("name", key)) for key in keys], where=lambda node: f"node {keys[node]!r}")
    draft.parents, draft.by_number = [-1] * len(keys), True
    for parent, child in graph.edges():
        node, above = number[child], number[parent]
        before = int(draft.parents[node])
        if before == -1:
            draft.parents[node] = above
        elif before == above:
            draft.problems.append(f"the edge from {parent!r} to {child!r} is repeated")
        else:
            draft.problems.append(
                f"node {child!r} has two parents, {keys[before]!r} and {parent!r}; a taxonomy is a tree: remove one of "
                "the two edges, or use am.Graph.from_networkx"
            )
            draft.further.append((above, node, draft.problems[-1]))
    tops = [keys[node] for node, parent in enumerate(draft.parents) if parent == -1]
    draft.has_root = len(tops) == 1
    if len(tops) > 1:
        draft.problems.append(f"{len(tops)} nodes have no parent: {listing(map(str, tops))}; add one root above them")
    for node, key in enumerate(keys):
        if (text := graph.nodes[key].get(DESCRIPTION)) is not None:
            draft.describe(node, text)
    _order_classes(draft, [graph.nodes[key].get("class_id") for key in keys])
    return draft


def to_networkx(tax: Taxonomy) -> networkx.DiGraph:
    graph = _package("networkx").DiGraph()
    graph.add_nodes_from((node, {"name": name}) for node, name in enumerate(tax.names))
    graph.add_edges_from(tax.edges.tolist())
    for number, leaf in enumerate(tax.leaves.tolist()):
        graph.nodes[leaf]["class_id"] = number
    for node, text in enumerate(tax.given_texts or ()):
        if text:
            graph.nodes[node][DESCRIPTION] = text
    return graph


def read_anytree(root: anytree.NodeMixin) -> Draft:
    tree = _package("anytree")
    if not isinstance(root, (tree.NodeMixin, tree.LightNodeMixin)):
        raise TaxonomyError(f"expected an anytree node, found {type(root).__name__}")
    draft = Draft(has_root=True, by_number=True)
    ids: list[Any] = []
    stack: list[tuple[Any, int]] = [(root, -1)]
    while stack:
        item, parent = stack.pop()
        name = getattr(item, "name", None)
        if name is None:
            draft.problems.append(f"a node below {draft.below(parent)} has no name")
            name = f"node {len(ids)}"  # a placeholder: the error is raised anyway
        node = draft.add(str(name), parent)
        ids.append(getattr(item, "class_id", None))
        if (text := getattr(item, DESCRIPTION, None)) is not None:
            draft.describe(node, text)
        stack += [(child, node) for child in reversed(item.children)]
    _order_classes(draft, ids)
    return draft


def to_anytree(tax: Taxonomy) -> anytree.Node:
    node_type = _package("anytree").Node
    nodes = [
        node_type(name, node_id=node, class_id=number)
        for node, (name, number) in enumerate(zip(tax.names, tax.class_of.tolist(), strict=True))
    ]
    # Deepest level first: anytree checks all ancestors of a new parent, and bottom-up there are none yet.
    bounds = tax.level_start.tolist()
    for level in range(tax.depth, 0, -1):
        for node in range(bounds[level], bounds[level + 1]):
            nodes[node].parent = nodes[tax.parent[node]]
    for node, text in enumerate(tax.given_texts or ()):
        if text:
            setattr(nodes[node], DESCRIPTION, text)
    return nodes[0]


def _order_classes(draft: Draft, ids: list[Any]) -> None:
    """Order the classes by their ids, if every leaf has a different one."""
    inner = set(draft.parents)
    leaves = [node for node in range(len(ids)) if node not in inner]
    numbers = [ids[node] for node in leaves]
    if all(type(number) is int for number in numbers) and len(set(numbers)) == len(numbers):
        draft.classes = sorted(leaves, key=lambda node: ids[node])


def _package(name: str) -> Any:
    return import_extra(name, f"conversion of {name} trees", name)
