"""Datasets, table readers, tokenizers, vocabularies, word vectors and batches. Names are imported on first use."""

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "batching": ("Batches",),
        "datasets": ("DATASETS", "Dataset", "Status", "available", "data_root", "load"),
        "download": ("DownloadError", "fetch"),
        "examples": ("Examples",),
        "labels": ("infer_taxonomy", "label_nodes", "read_examples"),
        "ragged": ("Ragged",),
        "tables": ("RowBatch", "Table", "iter_rows", "read_table"),
        "vectors": ("WordVectors",),
        "vocabulary": ("Vocabulary",),
    },
)
