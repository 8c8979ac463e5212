"""A deeper tree of Reuters-52."""

from __future__ import annotations

from functools import cache

from arbormax.data.datasets.trees import R52, tree
from arbormax.taxonomy import Taxonomy

# A third level of the commodities, in the order of the paper's tree.
COMMODITIES = {
    "oil": "crude nat-gas pet-chem gas heat fuel jet",
    "food": "grain sugar coffee cocoa veg-oil orange livestock carcass meal-feed potato tea",
    "metal": "gold alum copper iron-steel tin strategic-metal zinc nickel platinum lead",
    "other commodities": "rubber lumber cotton",
}


@cache
def deep_r52() -> Taxonomy:
    """Reuters-52 with a third level among the commodities; the same classes in the same order as in the paper's tree.

    >>> deep_r52().path(deep_r52().find("zinc"))
    ('commodities', 'metal', 'zinc')
    """
    groups = [{name: below.split()} for name, below in COMMODITIES.items()]
    nested = {top: groups if top == "commodities" else below.split() for top, below in R52.items()}
    return Taxonomy.from_nested(nested, classes=tree("r52").classes)
