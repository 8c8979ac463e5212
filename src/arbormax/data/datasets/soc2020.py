"""Job titles of the UK Standard Occupational Classification 2020, from `label<TAB>text` tables and a taxonomy file."""

from __future__ import annotations

from arbormax.data.datasets.text_files import TextFiles

SOC2020 = TextFiles(
    "soc2020",
    "job titles and their unit group in the UK Standard Occupational Classification 2020: 412 groups in 4 levels",
    "contains public sector information licensed under the Open Government Licence v3.0",
    "Office for National Statistics, SOC 2020 coding index, version 12",
    "taxonomy.json",
    node_texts="names.tsv",
)
