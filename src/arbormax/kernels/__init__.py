"""Kernels for large trees: they read and write the rows on the paths of a batch and no others."""
