"""Being here puts tests/ on the path, so that every test can import strategies and oracles."""

from hypothesis import HealthCheck, settings

# The machines that run the tests are shared: how long one example takes says nothing about the code.
settings.register_profile("arbormax", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("arbormax")

# else doctests are looked for in them, and two files of one name cannot be had
collect_ignore_glob = ["*conftest.py", "*/conftest.py"]
