"""Datasets, table readers, tokenizers, vocabularies, word vectors and batches. Names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arbormax.data.batching import Batches
    from arbormax.data.datasets import DATASETS, Dataset, Status, available, data_root, load
    from arbormax.data.download import DownloadError, fetch
    from arbormax.data.examples import Examples
    from arbormax.data.labels import infer_taxonomy, label_nodes, read_examples
    from arbormax.data.ragged import Ragged
    from arbormax.data.tables import RowBatch, Table, iter_rows, read_table
    from arbormax.data.vectors import WordVectors
    from arbormax.data.vocabulary import Vocabulary

__all__ = [
    "DATASETS",
    "Batches",
    "Dataset",
    "DownloadError",
    "Examples",
    "Ragged",
    "RowBatch",
    "Status",
    "Table",
    "Vocabulary",
    "WordVectors",
    "available",
    "data_root",
    "fetch",
    "infer_taxonomy",
    "iter_rows",
    "label_nodes",
    "load",
    "read_examples",
    "read_table",
]

_NAMES = {
    "batching": ("Batches",),
    "datasets": ("DATASETS", "Dataset", "Status", "available", "data_root", "load"),
    "download": ("DownloadError", "fetch"),
    "examples": ("Examples",),
    "labels": ("infer_taxonomy", "label_nodes", "read_examples"),
    "ragged": ("Ragged",),
    "tables": ("RowBatch", "Table", "iter_rows", "read_table"),
    "vectors": ("WordVectors",),
    "vocabulary": ("Vocabulary",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'arbormax.data' has no attribute {name!r}")
    return getattr(import_module(f"arbormax.data.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
