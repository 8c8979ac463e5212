"""Settings of the whole suite. This file also puts tests/ on the import path, for strategies and oracles."""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# The test processes share the cores; threads of several processes would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests with the published datasets are skipped unless they are found.
data = Path(__file__).parents[2] / "shared" / "data"
if data.is_dir():
    os.environ.setdefault("ARBORMAX_DATA", str(data))

# Test machines may be shared, so the time of one example says nothing about the code.
settings.register_profile("arbormax", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("arbormax")

# Doctests would import every conftest.py as a module of the same name.
collect_ignore_glob = ["*conftest.py", "*/conftest.py"]
