"""Many trainings and their measures: evaluation, cross-validation, comparison and search."""

from arbormax.studies.compare import Comparison, compare
from arbormax.studies.crossval import CrossValidation, crossval
from arbormax.studies.evaluate import Evaluation, evaluate
from arbormax.studies.search import SearchError, SearchResult, search
from arbormax.studies.search_space import SearchSpace
from arbormax.studies.train import TrainedModel, train_model

__all__ = [
    "Comparison",
    "CrossValidation",
    "Evaluation",
    "SearchError",
    "SearchResult",
    "SearchSpace",
    "TrainedModel",
    "compare",
    "crossval",
    "evaluate",
    "search",
    "train_model",
]
