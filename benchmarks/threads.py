"""How long a short training takes on a busy machine: one thread, as many as cores, and the default of `--threads`.

The settings alternate, so that a change of the load meets all of them. `--busy` is the number of further processes
that compute all the time; the machine may be busy without them.

    python benchmarks/threads.py --busy 2
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "threads.csv"
BUSY = "import numpy as np\nx = np.random.rand(400, 400)\nwhile True: x = x @ x % 1"


def train(encoder, threads):
    """The seconds of `arbormax train` in a process of its own, without a limit of OpenMP."""
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    words = ["train", "trec", "--encoder", encoder, "--epochs", "2", "--no-refit", "--seed", "0"]
    with tempfile.TemporaryDirectory() as folder:
        words += ["--out", f"{folder}/m", *(() if threads is None else ("--threads", str(threads)))]
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "arbormax", *words], check=True, capture_output=True, env=free)
        return time.perf_counter() - start


def stop(*_):
    """End as after Ctrl-C, so that no busy process is left."""
    raise KeyboardInterrupt


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--encoders", nargs="+", default=["bag", "bilstm"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    others = [
        subprocess.Popen([sys.executable, "-c", BUSY], env={**os.environ, "OMP_NUM_THREADS": "1"})
        for _ in range(options.busy)
    ]
    settings = {"one": 1, "cores": os.cpu_count(), "default": None}
    about = circumstances("torch")
    try:
        rows = [
            {
                "encoder": encoder,
                "busy": options.busy,
                "load": round(os.getloadavg()[0], 1),
                "repeat": repeat,
                "threads": name,
                "seconds": round(train(encoder, threads), 2),
                **about,
            }
            for encoder in options.encoders
            for repeat in range(options.repeats)
            for name, threads in settings.items()
        ]
    finally:  # also after Ctrl-C
        for process in others:
            process.kill()
    append(options.out, rows)
    for encoder in options.encoders:
        found = {
            name: sorted(row["seconds"] for row in rows if (row["encoder"], row["threads"]) == (encoder, name))
            for name in settings
        }
        print(encoder, {name: values[len(values) // 2] for name, values in found.items()})


if __name__ == "__main__":
    main()
