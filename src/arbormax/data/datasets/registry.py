"""Datasets by name. A new dataset is a `DatasetSource` in one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arbormax._registry import Registry

if TYPE_CHECKING:
    from arbormax.data.datasets.base import DatasetSource

DATASETS: Registry[DatasetSource] = Registry("dataset")
DATASETS.add("icd10cm", "arbormax.data.datasets.icd10cm:ICD10CM", "diagnosis texts and their ICD-10-CM category")
DATASETS.add("trec", "arbormax.data.datasets.paper:TREC", "questions and the kind of answer they ask for")
DATASETS.add("20ng", "arbormax.data.datasets.paper:NEWSGROUPS", "Usenet posts and their newsgroup")
DATASETS.add("r8", "arbormax.data.datasets.paper:R8", "Reuters news of 1987 and their topic, 8 topics")
DATASETS.add("r52", "arbormax.data.datasets.paper:R52", "Reuters news of 1987 and their topic, 52 topics")
DATASETS.add("soc2020", "arbormax.data.datasets.soc2020:SOC2020", "job titles and their group in the UK's SOC 2020")
