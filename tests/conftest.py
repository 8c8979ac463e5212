"""Being here puts tests/ on the path, so that every test can import strategies and oracles."""

import os

from hypothesis import HealthCheck, settings

# The tests share the cores among themselves: threads of several processes that wait for each other wait long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The machines that run the tests are shared: how long one example takes says nothing about the code.
settings.register_profile("arbormax", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("arbormax")

# else doctests are looked for in them, and two files of one name cannot be had
collect_ignore_glob = ["*conftest.py", "*/conftest.py"]
