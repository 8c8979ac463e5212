"""Makes the code of the studies importable, as their run.py does."""

import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
sys.path[:0] = [
    str(EXPERIMENTS / "paper"),
    str(EXPERIMENTS / "heads"),
    str(EXPERIMENTS / "when"),
    str(EXPERIMENTS / "trees"),
]
