"""The trees of Schuurmans & Frasincar (2020): categories and their classes, in class order."""

from __future__ import annotations

from functools import cache

from arbormax.taxonomy import Taxonomy

TREC = {
    "ABBR": "abb exp",
    "ENTY": (
        "animal other cremat dismed food termeq sport event product substance color techmeth veh word body lang plant "
        "currency religion instru letter symbol"
    ),
    "DESC": "def manner desc reason",
    "HUM": "gr desc title ind",
    "LOC": "mount state country city other",
    "NUM": "volsize weight code speed temp ord dist other perc date period money count",
}

NEWSGROUPS = {
    "rec": "rec.sport.hockey rec.motorcycles rec.sport.baseball rec.autos",
    "religion": "soc.religion.christian alt.atheism talk.religion.misc",
    "sci": "sci.crypt sci.med sci.space sci.electronics",
    "comp": "comp.windows.x comp.sys.ibm.pc.hardware comp.graphics comp.sys.mac.hardware comp.os.ms-windows.misc",
    "talk.politics": "talk.politics.mideast talk.politics.guns talk.politics.misc",
    "misc": "misc.forsale",
}

R8 = {
    "corporate": "earn acq",
    "commodity": "crude grain",
    "macro": "trade ship",
    "monetary": "money-fx interest",
}

R52 = {
    "corporate": "earn acq",
    "commodities": (
        "crude nat-gas pet-chem gas heat fuel jet grain sugar coffee cocoa veg-oil orange livestock carcass meal-feed "
        "potato tea gold alum copper iron-steel tin strategic-metal zinc nickel platinum lead rubber lumber cotton"
    ),
    "macro": "trade retail gnp cpi jobs ipi wpi housing ship lei income cpu bop",
    "monetary": "money-fx interest money-supply reserves instal-debt dlr",
}


@cache
def tree(name: str) -> Taxonomy:
    """The paper's tree of a dataset; its classes are the labels in the files.

    >>> tree("trec").path(tree("trec").find("NUM:date"))
    ('NUM', 'NUM:date')
    """
    if name == "trec":  # fine names repeat, so a label is COARSE:fine
        return Taxonomy.from_nested({top: [f"{top}:{fine}" for fine in below.split()] for top, below in TREC.items()})
    table = {"20ng": NEWSGROUPS, "r8": R8, "r52": R52}[name]
    return Taxonomy.from_nested({top: below.split() for top, below in table.items()})
