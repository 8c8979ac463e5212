"""Integrations with other libraries. Each module needs its own packages, so import it where it is used."""
