"""The study of heads: which head, with the texts of nodes or a loss on the path, on seven datasets."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "paper"))  # `study`, which has the texts of nodes
