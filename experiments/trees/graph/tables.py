"""Write the results as a table: python experiments/trees/graph/tables.py > experiments/trees/graph/RESULTS.md"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev

RESULTS = Path(__file__).parent / "results"
NAMES = {
    "graph": "hierarchical softmax, graph",
    "tree": "hierarchical softmax, tree of the first parents",
    "shared": "shared softmax, graph",
    "flat": "flat softmax",
}
COLUMNS = {
    "accuracy": ("accuracy, %", 100, 1),
    "macro_f1": ("macro-F1, %", 100, 1),
    "hf": ("hF on the graph, %", 100, 1),
    "nll": ("NLL", 1, 3),
    "accuracy_several_paths": ("accuracy of classes with several paths, %", 100, 1),
    "nll_several_paths": ("NLL of these", 1, 3),
}


def main() -> None:
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    first = runs[0]
    seeds = len({run["seed"] for run in runs})
    print(f"Part of WordNet below '{first['branch']}': {first['graph'].strip('<>')}; {first['train']:,} definitions to")
    several = f"{first['items_several_paths']:,} of them of classes with several paths"
    print(f"train on, {first['test']:,} to test on, {several}.")
    print(f"Mean and standard deviation over {seeds} seeds.\n")
    print("| head | " + " | ".join(title for title, _, _ in COLUMNS.values()) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for method, name in NAMES.items():
        own = [run for run in runs if run["method"] == method]
        cells = []
        for column, (_, scale, digits) in COLUMNS.items():
            values = [scale * run[column] for run in own]
            cells.append(f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
