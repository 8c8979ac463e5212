"""What the study trains, in the order of the seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

DATASETS = ("trec", "soc2020", "icd10cm")
HEADS = {"tfidf": ("flat", "hierarchical", "blended"), "minilm": ("flat", "hierarchical", "shared")}
SHARES = (0.05, 0.1, 0.25, 0.5)  # of the training texts that keep their class as label
RESTS = ("dropped", "parent", "grandparent")  # what the labels of the other texts become
LEVELS = {"trec": 2, "soc2020": 4, "icd10cm": 5}
SEEDS = 5


@dataclass(frozen=True)
class Job:
    """One training and its evaluation on the test texts."""

    dataset: str
    model: str
    head: str
    share: float = 1.0
    rest: str = "dropped"
    tree: str = "full"  # or "shuffled", or "levels2": the first level of the tree and the classes
    seed: int = 0

    @property
    def setting(self) -> str:
        """The name of what is varied, for files and tables."""
        return f"{self.share:g}-{self.rest}" if self.share < 1 else self.tree

    @property
    def file(self) -> str:
        return f"{self.dataset}/{self.model}-{self.head}-{self.setting}-seed{self.seed}.json"


def jobs(dataset: str, model: str, seeds: int) -> Iterator[Job]:
    """All trainings of a model on a dataset; settings that equal another one are left out."""
    trees = ("full", "shuffled", *(f"levels{level}" for level in range(2, LEVELS[dataset])))
    for seed in range(seeds):
        for head in HEADS[model]:
            for tree in trees:
                if head != "flat" or tree == "full":  # the flat head does not depend on the tree
                    yield Job(dataset, model, head, tree=tree, seed=seed)
            for share in SHARES:
                for rest in RESTS:
                    useless = (rest == "grandparent" and LEVELS[dataset] == 2) or (
                        rest != "dropped" and (model, head) == ("tfidf", "flat")  # ignores coarse labels
                    )
                    if not useless:
                        yield Job(dataset, model, head, share, rest, seed=seed)
