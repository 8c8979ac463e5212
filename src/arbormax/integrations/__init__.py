"""Bridges to other libraries, a module each: imported where used, for each needs packages that the others do not."""
