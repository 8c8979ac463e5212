"""`am.replace_head`: replaces the last layer, and updates the config of a model of transformers."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

from torch import nn

from arbormax.heads import replace_head as swap_head
from arbormax.taxonomy import Taxonomy


@wraps(swap_head)
def replace_head(
    model: nn.Module,
    tax: Taxonomy,
    head: str = "hierarchical",
    *,
    name: str | None = None,
    keep_rows: bool = True,
    **options: Any,
) -> nn.Module:
    library = sys.modules.get("transformers.modeling_utils")  # imported if the model is one of transformers
    if library is None or not isinstance(model, library.PreTrainedModel):
        return swap_head(model, tax, head, name=name, keep_rows=keep_rows, **options)
    from arbormax.integrations import transformers as hf

    return hf.replace_head(model, tax, head, name=name, keep_rows=keep_rows, **options)
