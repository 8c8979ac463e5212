"""Shared by the benchmarks: processor and versions of a run, and the CSV file of its rows."""

import csv
import fcntl
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import arbormax


def circumstances(*packages: str) -> dict[str, str]:
    """Return date, processor and versions, for every row."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "device": f"{_processor()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "arbormax": arbormax.__version__,  # also from a checkout that is not installed
        **{package: version(package) for package in packages},
    }


def append(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Add rows to a CSV file, with a header if it is new; several processes may add to one file."""
    rows = list(rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", newline="") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # until the file is closed
        writer = csv.DictWriter(stream, rows[0])
        if not os.fstat(stream.fileno()).st_size:
            writer.writeheader()
        writer.writerows(rows)
    print(f"\n{len(rows)} rows appended to {file.name}")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
