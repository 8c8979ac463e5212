"""Run the study of the paper: `arbormax reproduce experiments/paper --dataset trec --quick`."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.resolve()))
    from study.command import main

    sys.exit(main(FOLDER, sys.argv[1:]))
