"""WordNet: the definitions of nouns and the group of things they name, a graph with several parents.

Debian's package wordnet-base installs the files. Their layout is described in the manual page wndb(5WN).
"""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from arbormax.data.datasets.base import Dataset, DatasetSource, MissingDataError, Status
from arbormax.data.examples import Examples
from arbormax.errors import InputError
from arbormax.taxonomy import Graph, Taxonomy

NAME = "wordnet"
DESCRIPTION = "definitions of nouns and the group of things they name, a graph in which groups have several parents"
LICENCE = "WordNet 3.0 licence of Princeton University: free to use, with its notice"
FILE = "data.noun"
SYSTEM_FOLDER = Path("/usr/share/wordnet")
SIZES = {15_300_280: (26_001, 6_670)}  # rows by the size of the file, so that `status` does not read it
LEAST = 20  # definitions at or below a group
_UPWARDS = ("@", "@i")  # hypernym, and hypernym of an instance
_FOLDS = 5  # one of them is the test split


class _Synset(NamedTuple):
    offset: str
    words: list[str]
    parents: list[str]
    gloss: str


def read_wordnet(path: Path | str) -> Graph:
    """The graph of all synsets in `data.noun` or `data.verb`.

    A node is a synset. Its name is its first word, with the offset of the synset if several begin with that word, and
    its text is all words and the definition.
    """
    synsets: list[_Synset] = []
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        if line.strip() and not line.startswith("  "):  # the licence is indented
            try:
                synsets.append(_read_synset(line))
            except (ValueError, IndexError):
                found = f"{Path(path).name}: expected a synset, found {line[:60]!r} (line {number})"
                raise InputError(found) from None
    first = Counter(synset.words[0] for synset in synsets)
    names = [s.words[0] if first[s.words[0]] == 1 else f"{s.words[0]} {s.offset}" for s in synsets]
    node_of = {synset.offset: node for node, synset in enumerate(synsets)}
    parents = [[node_of[offset] for offset in synset.parents if offset in node_of] for synset in synsets]
    texts = {name: f"{', '.join(synset.words)}: {synset.gloss}" for name, synset in zip(names, synsets, strict=True)}
    return Graph.from_parents(parents, names).with_texts(texts)


def _read_synset(line: str) -> _Synset:
    data, _, gloss = line.partition(" | ")
    fields = data.split()
    count = int(fields[3], 16)
    words = [word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]]
    pointers = fields[5 + 2 * count : 5 + 2 * count + 4 * int(fields[4 + 2 * count])]
    parents = [pointers[i + 1] for i in range(0, len(pointers), 4) if pointers[i] in _UPWARDS]
    if not words or len(words) != count or not fields[0].isdigit():
        raise ValueError(line)
    return _Synset(fields[0], words, list(dict.fromkeys(parents)), gloss.strip())


class WordNetSource(DatasetSource):
    """The dataset in the system folder, or in the subfolder `wordnet` of the data folder."""

    name = NAME
    description = DESCRIPTION
    hint = "apt-get install wordnet-base"

    def load(self, folder: Path) -> Dataset:
        """The dataset, built in about ten seconds.

        A group is a synset with at least 20 definitions of synsets without hyponyms below it, and a class is a group
        without groups below it. A definition belongs to the group that its first hypernyms lead to.
        """
        path = _find(folder)
        if path is None:
            raise MissingDataError(f"the dataset wordnet needs the file {FILE}: {self.hint}")
        synsets = read_wordnet(path)
        graph = _groups(synsets)
        group_of = _group_of(synsets, graph)
        texts = synsets.texts
        rows: list[tuple[str, int]] = []
        for leaf in synsets.leaves.tolist():
            node = int(group_of[leaf])
            if graph.class_of[node] >= 0:
                rows.append((_definition(texts[leaf]), node))
        is_test = np.array([zlib.crc32(text.encode()) % _FOLDS == 0 for text, _ in rows])
        train, test = (
            Examples([rows[i][0] for i in places], np.array([rows[i][1] for i in places]))
            for places in (np.flatnonzero(~is_test).tolist(), np.flatnonzero(is_test).tolist())
        )
        return Dataset(NAME, graph, train, test, DESCRIPTION, LICENCE, f"WordNet 3.0, {path}")

    def taxonomy(self, folder: Path) -> Taxonomy:
        return self.load(folder).taxonomy

    def status(self, folder: Path) -> Status:
        path = _find(folder)
        if path is None:
            return Status(NAME, False, DESCRIPTION, missing=(FILE,), hint=self.hint)
        train, test = SIZES.get(path.stat().st_size, (None, None))
        return Status(NAME, True, DESCRIPTION, train, test, found=(str(path),))


WORDNET = WordNetSource()


def _find(folder: Path) -> Path | None:
    places = (folder / NAME / FILE, SYSTEM_FOLDER / FILE)
    return next((path for path in places if path.is_file()), None)


def _is_group(synsets: Graph) -> np.ndarray:
    return np.asarray((synsets.leaf_counts >= LEAST) & ~synsets.is_leaf)


def _groups(synsets: Graph) -> Graph:
    """The graph of the synsets with enough definitions below them; what is above such a synset has enough, too."""
    kept = _is_group(synsets)
    edges = synsets.edges[kept[synsets.edges].all(1)]
    names = synsets.names
    return Graph.from_edges([(names[parent], names[child]) for parent, child in edges.tolist()])


def _group_of(synsets: Graph, graph: Graph) -> np.ndarray:
    """(N,) the group of each synset: itself, or the first one on the path of its first parents."""
    node_of = {name: node for node, name in enumerate(graph.names)}
    group = np.zeros(synsets.num_nodes, np.int64)
    kept = _is_group(synsets)
    group[kept] = [node_of[synsets.names[node]] for node in np.flatnonzero(kept).tolist()]
    starts = synsets.level_start.tolist()
    for first, stop in pairwise(starts[1:]):
        above = group[synsets.first_parent[first:stop]]
        group[first:stop] = np.where(kept[first:stop], group[first:stop], above)
    return group


def _definition(text: str) -> str:
    """The definition without the words and without the examples, which are in quotes."""
    gloss = text.partition(": ")[2]
    return gloss.partition('; "')[0].strip() or gloss
