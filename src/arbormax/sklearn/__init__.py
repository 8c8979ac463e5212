"""Classifiers with scikit-learn's conventions."""

from arbormax.errors import MissingDependencyError

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("A scikit-learn estimator", "scikit-learn>=1.6", "sklearn") from error
