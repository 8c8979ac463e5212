"""Run the study of the settings: `arbormax reproduce experiments/why --dataset trec`. It uses the paper's runner."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent.joinpath("paper").resolve()))
    from study.command import main

    sys.exit(main(FOLDER, sys.argv[1:]))
