"""Texts in: datasets, readers, tokenisers, vocabulary, word vectors and batches."""

from arbormax.data.batching import Batches
from arbormax.data.datasets import Dataset, Status, available, data_root, load
from arbormax.data.download import DownloadError, fetch
from arbormax.data.examples import Examples
from arbormax.data.labels import infer_taxonomy, label_nodes, read_examples
from arbormax.data.ragged import Ragged
from arbormax.data.tables import RowBatch, Table, iter_rows, read_table
from arbormax.data.vectors import Coverage, WordVectors
from arbormax.data.vocabulary import Vocabulary

__all__ = [
    "Batches",
    "Coverage",
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
