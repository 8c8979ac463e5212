"""Labelled data from datasets and files."""

import numpy as np
import pytest

from arbormax import Taxonomy
from arbormax.data import Examples
from arbormax.data.labelled import LabelledReader, check_data, map_examples
from arbormax.errors import InputError, LabelError, OptionError

ROWS = "text,label\ngoal,news/sport\nrain,news/weather\nboots,shop\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.v1.csv").write_text(ROWS)
    (tmp_path / "test.csv").write_text("text,label\nwin,news/sport\n")
    (tmp_path / "other.csv").write_text("text,label\nhat,shop/hats\n")
    Taxonomy.from_paths([("news", "sport"), ("news", "weather"), ("shop",)]).save(tmp_path / "tree.json")
    return tmp_path


def test_the_taxonomy_of_a_file_is_inferred_or_loaded(files):
    data = str(files / "train.v1.csv")
    inferred = LabelledReader().read(data, test=files / "test.csv")
    assert (inferred.name, inferred.taxonomy.classes) == ("train", ("sport", "weather", "shop"))
    assert inferred.origin["taxonomy"] == "inferred"
    assert (len(inferred.train), inferred.valid, len(inferred.test)) == (3, None, 1)
    loaded = LabelledReader().read(data, files / "tree.json")
    assert loaded.taxonomy == inferred.taxonomy
    assert loaded.origin["taxonomy"] == str(files / "tree.json")


def test_a_validation_label_that_training_lacks_is_an_error_with_a_fix(files):
    with pytest.raises(LabelError, match=r"other\.csv.*inferred from") as caught:
        LabelledReader().read(str(files / "train.v1.csv"), valid=files / "other.csv")
    assert caught.value.fix == {"taxonomy": "FILE"}


def test_a_dataset_has_its_own_taxonomy(files):
    with pytest.raises(OptionError, match="taxonomy: the dataset icd10cm has its own taxonomy"):
        LabelledReader().read("icd10cm", files / "tree.json")


def test_skipped_rows_are_reported(files):
    (files / "bad.csv").write_text(ROWS + "alone\n")
    skipped = []
    reader = LabelledReader(on_bad_rows="skip", on_skipped=lambda name, rows: skipped.append((name, len(rows))))
    assert len(reader.read(str(files / "bad.csv")).train) == 3
    assert skipped == [("bad.csv", 1)]


def test_a_word_that_is_neither_a_dataset_nor_a_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"neither a dataset .* did you mean 'trec'"):
        check_data("trce")


def test_examples_are_mapped_to_a_taxonomy_with_the_same_paths():
    own = Taxonomy.from_paths([("a", "x"), ("b",)])
    wider = Taxonomy.from_paths([("b",), ("a", "y"), ("a", "x")])
    examples = Examples(["one", "two"], own.leaves)
    mapped = map_examples(examples, own, wider, "mine")
    assert [wider.path(node) for node in mapped.nodes] == [("a", "x"), ("b",)]
    with pytest.raises(InputError, match="another taxonomy than mine"):
        map_examples(Examples(["one"], np.array([1])), wider, own, "mine")
