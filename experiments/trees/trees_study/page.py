"""The records of the study, summarised with paired intervals, as Markdown."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arbormax.metrics.bootstrap import bootstrap
from trees_study.jobs import read
from trees_study.plan import PLAN

TITLES = {"trec": "TREC", "r8": "R8", "r52": "R52", "20ng": "20NG", "soc2020": "SOC 2020", "icd10cm": "ICD-10-CM"}
TREES = ("human", "centroids", "confusion", "names", "kmeans", "huffman", "random", "shuffled", "flat")
HEADS = ("hierarchical", "blended")
MEASURES = ("accuracy", "macro_f1", "hf")
RESAMPLES = 1000

Arms = dict[str, list[dict[str, Any]]]  # "tree-head" → the records of its folds


def read_records(folder: Path) -> dict[str, Arms]:
    """The records of each dataset, of arms with all folds."""
    found: dict[str, Arms] = {}
    for dataset in PLAN:
        arms = defaultdict(list)
        for path in sorted((folder / dataset).glob("*-fold*.json")):
            record = json.loads(path.read_text("utf-8"))
            arms[f"{record['tree']}-{record['head']}"].append(record)
        most = max(map(len, arms.values()), default=0)
        complete = {name: sorted(rows, key=lambda row: row["fold"]) for name, rows in arms.items() if len(rows) == most}
        if complete:
            found[dataset] = complete
    return found


def compared(arms: Arms) -> list[tuple[str, str]]:
    """Each tree with the human one, with the shuffled one and with none, all with the same head."""
    pairs = []
    for head in HEADS:
        for tree in TREES:
            arm = f"{tree}-{head}"
            bases = (f"human-{head}", f"shuffled-{head}", "flat-flat")
            pairs += [(arm, base) for base in bases if arm in arms and base in arms and arm != base]
    pairs += [("flat-flat", base) for base in ("human-hierarchical", "shuffled-hierarchical") if base in arms]
    return pairs


def intervals(dataset: str, arms: Arms, folder: Path) -> dict[str, dict[str, list[float]]]:
    """The paired intervals of all compared arms, stored beside the records until these change."""
    path = folder / dataset / "differences.json"
    used = [[name, [row["predicted"] for row in rows]] for name, rows in sorted(arms.items())]
    digest = hashlib.sha256(json.dumps([RESAMPLES, MEASURES, used]).encode()).hexdigest()
    if path.is_file() and (stored := json.loads(path.read_text("utf-8")))["digest"] == digest:
        return dict(stored["differences"])
    tree = read(dataset)[0]
    nodes = {name: tree.leaves[_join(rows, "predicted")] for name, rows in arms.items()}
    true_n = tree.leaves[_join(next(iter(arms.values())), "true")]
    found: dict[str, dict[str, list[float]]] = {}
    for base in sorted({base for _, base in compared(arms)}):
        sides = {base: nodes[base], **{arm: nodes[arm] for arm, other in compared(arms) if other == base}}
        by_arm = bootstrap(true_n, sides, tree, baseline=base, measures=MEASURES, resamples=RESAMPLES).differences
        for arm, by_measure in by_arm.items():
            found[f"{arm} − {base}"] = {name: [round(v, 5) for v in value] for name, value in by_measure.items()}
    path.write_text(json.dumps({"digest": digest, "differences": found}, indent=1) + "\n", "utf-8")
    return found


def page(records: Mapping[str, Arms], folder: Path) -> str:
    """The results as Markdown."""
    differences = {dataset: intervals(dataset, arms, folder) for dataset, arms in records.items()}
    parts = [
        "Macro-F1 in points with one softmax per parent, a tree minus another one, with 95 % intervals; bold ones\n"
        "exclude 0.",
        _summary(records, differences, "hierarchical"),
        "The same with the default head:",
        _summary(records, differences, "blended"),
    ]
    for dataset, arms in records.items():
        rows = next(iter(arms.values()))
        true = _join(rows, "true")
        size = f"{len(true):,} texts of {len(np.unique(true)):,} classes, {len(rows)} folds."
        parts += [f"#### {TITLES[dataset]}", size, _details(arms)]
    return "\n\n".join(parts)


def _summary(records: Mapping[str, Arms], differences: Mapping[str, Any], head: str) -> str:
    pairs = {
        "human − shuffled": (f"human-{head}", f"shuffled-{head}"),
        "centroids − shuffled": (f"centroids-{head}", f"shuffled-{head}"),
        "centroids − human": (f"centroids-{head}", f"human-{head}"),
        "human − none": (f"human-{head}", "flat-flat"),
        "centroids − none": (f"centroids-{head}", "flat-flat"),
    }
    lines = []
    for dataset in records:
        cells = [differences[dataset].get(" − ".join(pair)) for pair in pairs.values()]
        if any(cells):
            lines.append((TITLES[dataset], *(_interval(cell["macro_f1"]) if cell else "–" for cell in cells)))
    return _table(("data", *pairs), lines)


def _details(arms: Arms) -> str:
    columns = ("tree", "head", "accuracy", "macro-F1", "hF", "NLL", "distance", "seconds")
    order = [*(f"{tree}-{head}" for head in HEADS for tree in TREES), "flat-flat"]
    lines = []
    for name in filter(arms.__contains__, order):
        rows = arms[name]
        shown = [_mean([row[key] for row in rows], 100, 1) for key in MEASURES]
        tree, head = name.split("-")
        more = (_mean([row["nll"] for row in rows], 1, 3), f"{np.mean([row['distance'] for row in rows]):.2f}")
        tree, head = ("none", "flat") if name == "flat-flat" else (tree, head)
        lines.append((tree, head, *shown, *more, f"{np.mean([row['seconds'] for row in rows]):.1f}"))
    return _table(columns, lines)


def _mean(values: Sequence[float], scale: float, digits: int) -> str:
    deviation = f" ± {scale * np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{scale * np.mean(values):.{digits}f}{deviation}"


def _interval(value: Sequence[float]) -> str:
    mean, low, high = (f"{100 * number:+.1f}".replace("-", "−") for number in value)
    text = f"{mean} [{low}, {high}]"
    return f"**{text}**" if value[1] > 0 or value[2] < 0 else text


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *rows])


def _join(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.concatenate([_unpack(row[name]) for row in rows])


def _unpack(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i2").astype(np.int64)
