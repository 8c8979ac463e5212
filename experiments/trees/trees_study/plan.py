"""What the study trains: samples of the datasets, trees and heads, in order."""

from __future__ import annotations

from dataclasses import dataclass

FOLDS = 5


@dataclass(frozen=True)
class Plan:
    """What is trained on a dataset."""

    branching: int = 8
    most_texts: int | None = None  # a stratified sample of the training texts


# Reuters-8 has eight classes, which would all be children of the root.
PLAN = {
    "trec": Plan(),
    "r8": Plan(branching=3),
    "r52": Plan(most_texts=2_500),
    "20ng": Plan(most_texts=2_500),
    "soc2020": Plan(most_texts=5_000),
    "icd10cm": Plan(most_texts=5_000),
}
# Trees and heads, the most important first; a stage is finished for all datasets before the next one starts.
STAGES = (
    (("flat", "flat"), ("human", "hierarchical"), ("shuffled", "hierarchical"), ("centroids", "hierarchical")),
    (("human", "blended"), ("shuffled", "blended"), ("centroids", "blended")),
    tuple((tree, "hierarchical") for tree in ("kmeans", "names", "huffman", "random", "confusion")),
    tuple((tree, "blended") for tree in ("kmeans", "names", "huffman", "random", "confusion")),
)
