"""Makes the paper's study importable, as its run.py does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))
