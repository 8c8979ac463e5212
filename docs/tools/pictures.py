"""Draw the pictures of docs/choosing.md into docs/figures.

python docs/tools/pictures.py            # all; trains three classifiers of diagnoses, some minutes
python docs/tools/pictures.py --quick    # the trees only
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

import arbormax as am
from arbormax.report import tree_svg

sys.path.insert(0, str(Path(__file__).parent))  # for runs other than as a script
from interval_plot import Interval, intervals_svg
from line_plot import Curve, curves_svg

FIGURES = Path(__file__).parents[1] / "figures"
ANIMALS = am.Taxonomy.from_nested({"bird": {"owl": ["barn owl", "tawny owl"], "duck": []}, "mammal": ["cat", "dog"]})
LEAVES = {"barn owl": 0.30, "tawny owl": 0.25, "duck": 0.05, "cat": 0.38, "dog": 0.02}


def animals_log_probs() -> torch.Tensor:
    """(1, N): the answer that the page's pictures and its code look at."""
    leaves = torch.tensor([[LEAVES[name] for name in ANIMALS.classes]])
    return am.functional.flat_node_log_probs(leaves.log(), ANIMALS)


def decoders() -> str:
    """Which node each decoder takes."""
    logp = animals_log_probs()
    rules = {
        "leaf": am.decode.leaf(logp, ANIMALS),
        "greedy": am.decode.greedy(logp, ANIMALS),
        "threshold 0.5": am.decode.threshold(logp, ANIMALS, tau=0.5),
        "threshold 0.57": am.decode.threshold(logp, ANIMALS, tau=0.57),
    }
    notes = {}
    for node in range(1, ANIMALS.num_nodes):
        taken = [rule for rule, answer in rules.items() if int(answer[0]) == node]
        notes[node] = f"({logp[0, node].exp():.2f})" + (f" ← {', '.join(taken)}" if taken else "")
    return tree_svg(_annotated(notes), "One answer, four decoders")


def measures() -> str:
    """What an answer costs when the truth is a barn owl."""
    truth = ANIMALS.find("barn owl")
    notes = {}
    for node in range(1, ANIMALS.num_nodes):
        values = am.metrics.evaluate([truth], [node], ANIMALS)
        notes[node] = f"(hF {values['hf']:.2f}, distance {values['tree_distance']:.0f})"
    return tree_svg(_annotated(notes), "The truth is “barn owl”: what each answer scores")


def _annotated(notes: dict[int, str]) -> am.Taxonomy:
    names = [ANIMALS.names[0], *(f"{ANIMALS.names[node]} {notes[node]}" for node in range(1, ANIMALS.num_nodes))]
    return am.Taxonomy.from_parents(ANIMALS.parent.tolist(), names=names)


def heads() -> dict[str, str]:
    """Three heads on ICD-10-CM: differences with intervals, and the operating curves."""
    from arbormax.data import load
    from arbormax.metrics.bootstrap import bootstrap

    data = load("icd10cm")
    tax, truth = data.taxonomy, np.asarray(data.test.nodes)
    labels = [tax.path(node) for node in data.train.nodes]
    predicted, curves = {}, {}
    for head in ("flat", "hierarchical", "shared"):
        clf = am.TextClassifier(tax, encoder="bag", head=head, epochs=6, validation=0, seed=0)
        clf.fit(list(data.train.inputs), labels)
        logp = torch.from_numpy(clf.predict_log_proba(list(data.test.inputs)))
        predicted[head] = tax.leaves[logp.argmax(-1).numpy()]
        curve = am.metrics.operating_curve(am.functional.flat_node_log_probs(logp, tax), truth, tax)
        order = np.argsort(curve.specificity, kind="stable")
        curves[f"{head} (area {curve.area:.3f})"] = Curve(
            np.asarray(curve.specificity)[order].tolist(), np.asarray(curve.correct)[order].tolist()
        )
    names = {"accuracy": "accuracy", "macro_f1": "macro-F1", "hf": "hF"}
    found = bootstrap(truth, predicted, tax, baseline="flat", measures=list(names), resamples=1000).differences
    rows = [
        Interval(title, f"{head} − flat", *(100 * value for value in found[head][measure]))
        for head in ("hierarchical", "shared")
        for measure, title in names.items()
    ]
    return {
        "choosing-heads": intervals_svg(rows, "Diagnoses (ICD-10-CM), one seed: points against the flat softmax"),
        "choosing-curves": curves_svg(
            curves, "Sure or specific: the threshold is swept", x="specificity", y="share of answers that are correct"
        ),
    }


def quick() -> dict[str, str]:
    """The pictures that need no training."""
    return {"choosing-decoders": decoders(), "choosing-measures": measures()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only the pictures that need no training")
    drawn = quick() | ({} if parser.parse_args().quick else heads())
    for name, text in drawn.items():
        (FIGURES / f"{name}.svg").write_text(text, "utf-8")
        print(FIGURES / f"{name}.svg")


if __name__ == "__main__":
    main()
