"""Edits of a taxonomy: add, remove, move, split and rename nodes, and the rows of a head that follow.

All of it is numpy. The rows of a head are few numbers per edit, so `rows` computes them in float64 whatever the head's
device and dtype are. `arbormax.heads.edit` copies them to and from torch and is the only part that needs it.

- `patch`: edits in a file
- `plan`: the list of edits that a user builds, and the result
- `steps`: validates and applies the edits one by one
- `working`: the tree between two edits
- `rows`: the rows of a head after the edits
"""

from arbormax.taxonomy.edits.plan import Edited, TaxonomyEdits

__all__ = ["Edited", "TaxonomyEdits"]
