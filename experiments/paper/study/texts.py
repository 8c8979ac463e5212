"""The texts of nodes for datasets whose labels are abbreviations, written before any result was seen."""

from __future__ import annotations

from arbormax.taxonomy import Taxonomy

_TREC = {
    "ABBR": "abbreviation", "ENTY": "entity", "DESC": "description", "HUM": "human", "LOC": "location",
    "NUM": "number", "abb": "abbreviation", "exp": "expression abbreviated", "cremat": "creative material",
    "dismed": "disease and medicine", "termeq": "equivalent term", "techmeth": "technique and method",
    "veh": "vehicle", "lang": "language", "instru": "musical instrument", "gr": "group or organization",
    "ind": "individual person", "def": "definition", "volsize": "volume and size", "temp": "temperature",
    "ord": "order or rank", "dist": "distance", "perc": "percentage", "mount": "mountain", "desc": "description",
}  # fmt: skip

_REUTERS = {
    "acq": "mergers and acquisitions of companies", "alum": "aluminium", "bop": "balance of payments",
    "cpi": "consumer price index and inflation", "cpu": "capacity utilisation of industry", "crude": "crude oil",
    "dlr": "the dollar's exchange rate", "earn": "earnings, profits and dividends of companies",
    "fuel": "fuel oil", "gas": "petrol and gasoline", "gnp": "gross national product",
    "heat": "heating oil", "instal-debt": "consumer instalment debt", "interest": "interest rates",
    "ipi": "industrial production index", "iron-steel": "iron and steel", "jobs": "employment and unemployment",
    "lead": "lead metal", "lei": "leading economic indicators", "livestock": "livestock, cattle and hogs",
    "lumber": "lumber and wood", "meal-feed": "meal and animal feed", "money-fx": "foreign exchange and money market",
    "money-supply": "money supply", "nat-gas": "natural gas", "nickel": "nickel", "orange": "orange juice",
    "pet-chem": "petrochemicals", "platinum": "platinum", "potato": "potatoes", "reserves": "foreign reserves",
    "retail": "retail sales", "rubber": "rubber", "ship": "shipping and ships", "strategic-metal": "strategic metals",
    "trade": "foreign trade", "veg-oil": "vegetable oil", "wpi": "wholesale price index",
}  # fmt: skip

_NEWS = {
    "comp": "computer", "rec": "recreation", "sci": "science", "talk": "discussion", "misc": "miscellaneous",
    "soc": "society", "alt": "alternative", "sys": "system", "os": "operating system",
    "ms-windows": "microsoft windows", "pc": "personal computer", "mac": "apple macintosh", "x": "x window system",
    "crypt": "cryptography", "med": "medicine", "space": "space flight", "autos": "cars", "forsale": "items for sale",
    "mideast": "middle east", "guns": "guns and firearms",
}  # fmt: skip


def _spell(dataset: str, name: str) -> str:
    """The words of one name."""
    if dataset == "trec":
        return ": ".join(_TREC.get(part, part) for part in name.split(":"))
    if dataset == "20ng":
        return " ".join(_NEWS.get(part, part) for part in name.split("."))
    return _REUTERS.get(name, name.replace("-", " "))


def add_texts(dataset: str, tax: Taxonomy) -> Taxonomy:
    """The taxonomy with a text for each node; names that are words already are their own text."""
    if tax.has_texts or dataset == "icd10cm":
        return tax
    return tax.with_texts({tax.path(node): _spell(dataset, tax.names[node]) for node in range(1, tax.num_nodes)})
