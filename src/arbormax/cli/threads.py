"""How many threads torch uses: as many as there are idle cores."""

from __future__ import annotations

import os

from arbormax.errors import OptionError


def set_threads(threads: int | None) -> str:
    """Set the number of threads, by default that of the idle cores, and describe it for a message.

    On a busy machine, more threads than idle cores wait for one another and are slower than one. The environment
    variable OMP_NUM_THREADS has precedence over the default.
    """
    import torch

    if threads is not None and threads < 1:
        raise OptionError(f"expected at least 1, found {threads}", argument="threads")
    most = torch.get_num_threads()
    if threads is None and "OMP_NUM_THREADS" in os.environ:
        return _count(most)
    chosen = threads or max(1, min(most, usable_cores(), idle_cores()))
    torch.set_num_threads(chosen)
    is_busy = threads is None and chosen < min(most, usable_cores())
    return f"{_count(chosen)} of {most}, because other programs are running" if is_busy else _count(chosen)


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def idle_cores() -> int:
    """The cores of the machine less the programs that wanted one in the last minute."""
    if not hasattr(os, "getloadavg"):
        return os.cpu_count() or 1
    return round((os.cpu_count() or 1) - os.getloadavg()[0])


def _count(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"
