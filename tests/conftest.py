"""Being here puts tests/ on the path, so that every test can import strategies and oracles."""
