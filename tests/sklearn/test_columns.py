"""Text classifiers of several columns."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import arbormax as am
from arbormax.data.columns import InputColumns
from arbormax.data.tokens import FIELD, spans, words
from arbormax.errors import InputError, OptionError

ROWS = [
    {"name": name, "about": about, "brand": brand, "size": size}
    for name, about, brand, size in [
        ("scarf", "warm and red", "Acme & Co", 5.0),
        ("hat", "blue", "Bolt", None),
        ("ball", "round", "Bolt", 7.0),
        ("goal", None, "Net", 5.0),
    ]
] * 6
LABELS = ["shop/clothes", "shop/clothes", "sport/ball", "sport/ball"] * 6


def test_rows_of_any_kind_give_the_same_predictions(tmp_path):
    settings = {"text_columns": ["name", "about"], "also": ["brand", "size"]}
    clf = am.TextClassifier(**settings).fit(ROWS, LABELS)
    expected = clf.predict_proba(ROWS)
    tables = [pd.DataFrame(ROWS), pl.DataFrame(ROWS)]
    for table in tables:
        assert (clf.predict_proba(table) == expected).all()
    array = np.array([list(row.values()) for row in ROWS], dtype=object)
    by_position = am.TextClassifier(text_columns=[0, 1], also=[2, 3]).fit(array, LABELS)
    assert by_position.predict(array).tolist() == clf.predict(ROWS).tolist()
    clf.save(tmp_path / "m")
    again = am.TextClassifier.load(tmp_path / "m")
    assert (again.predict_proba(tables[0]) == expected).all()
    assert (again.text_columns, again.also) == (["name", "about"], ["brand", "size"])
    tokens = [token["text"] for token in again.explain(ROWS[0])["tokens"]]
    assert tokens == ["scarf", "warm", "and", "red", "brand: Acme & Co", "size: 5"]


def test_a_category_decides_where_the_texts_are_equal():
    rows = [{"text": "a thing", "brand": brand} for brand in ("Acme", "Bolt")] * 20
    labels = ["x", "y"] * 20
    clf = am.TextClassifier({"a": ["x", "y"]}, also=["brand"]).fit(rows, labels)
    assert clf.score(rows, labels) == 1.0
    # the word of a text is not the category
    plain = clf.predict_proba([{"text": "a thing Acme", "brand": ""}, {"text": "a thing Bolt", "brand": ""}])
    np.testing.assert_allclose(plain[0], plain[1], atol=1e-6)


def test_a_template_puts_columns_into_a_text():
    columns = InputColumns.of(template="{name} ({about})", also="brand")
    assert columns.names == ("name", "about", "brand")
    assert columns.compose(ROWS[0]) == f"scarf (warm and red) {FIELD} brand: Acme & Co"
    assert am.TextClassifier(template="{name} {about}").fit(ROWS, LABELS).predict(ROWS[:1]).tolist() == ["clothes"]


def test_a_category_is_one_token_that_no_word_is_equal_to():
    text = InputColumns(also=("brand",)).compose({"text": f"brand: acme {FIELD}x", "brand": f"ACME \n& {FIELD}Co"})
    *of_text, category = words(text)
    assert category not in words("brand: acme & co brand:_acme_&_co")
    assert FIELD not in "".join(of_text)
    assert len(spans(text)) == len(words(text))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_columns": ["name", "name"]}, "text_columns: expected different names"),
        ({"template": "{name", "also": ["brand"]}, "template: '{name' is not a template"),
        ({"template": "no names"}, "template: expected names of columns in braces"),
        ({"template": "{name!r}"}, "template: expected names of columns in braces"),
        ({"template": "{name}", "text_columns": ["name"]}, "template: cannot be combined with text_columns"),
        ({"text_columns": ["name"], "also": ["name"]}, "also: the column 'name' is a text already"),
    ],
)
def test_wrong_columns_are_errors(settings, message):
    with pytest.raises(OptionError, match=message):
        am.TextClassifier(**settings).fit(ROWS, LABELS)


def test_a_missing_column_is_an_error_with_a_hint():
    clf = am.TextClassifier(text_columns=["name"], also=["brand"]).fit(ROWS, LABELS)
    with pytest.raises(InputError, match=r"item 0 has no column 'brand'; did you mean 'brands'\?"):
        clf.predict([{"name": "hat", "brands": "x"}])
    with pytest.raises(InputError, match="X has no column 'brand'"):
        clf.predict(pd.DataFrame({"name": ["hat"]}))
    with pytest.raises(InputError, match="expected the columns of a row, found 5"):
        clf.predict([5])


TABLE = [{"weight": place % 5, "brand": brand, "size": 5.0} for place, brand in enumerate(["Acme", "Bolt", None] * 12)]
KINDS = ["shop/hat", "shop/scarf", "sport/ball"] * 12


def matrix(**settings) -> am.HierarchicalClassifier:
    return am.HierarchicalClassifier(also=["brand", "size"], accelerator="cpu", **settings)


def test_categories_beside_numbers_are_columns_of_zeros_and_ones(tmp_path):
    clf = matrix().fit(TABLE, KINDS)
    assert clf.categories_.numbers == ("weight",)
    assert clf.categories_.values == {"brand": ("Acme", "Bolt"), "size": ("5",)}
    assert clf.n_features_in_ == 4
    assert clf.score(TABLE, KINDS) == 1.0
    expected = clf.predict_proba(TABLE)
    array = np.array([list(row.values()) for row in TABLE], dtype=object)
    positions = am.HierarchicalClassifier(also=[1, 2], accelerator="cpu").fit(array, KINDS)
    for found in (clf.predict_proba(pd.DataFrame(TABLE)), positions.predict_proba(array)):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(clf.predict_proba(pl.DataFrame(TABLE)), expected, atol=1e-6)
    clf.save(tmp_path / "m")
    again = am.HierarchicalClassifier.load(tmp_path / "m")
    assert again.also == ["brand", "size"]
    assert (again.predict_proba(TABLE) == expected).all()


def test_rows_of_names_as_labels_take_categories_too():
    assert matrix().fit(TABLE, [tuple(kind.split("/")) for kind in KINDS]).predict(TABLE[:1]).tolist() == [
        ["shop", "hat"]
    ]


def test_an_unknown_category_is_like_none():
    clf = matrix().fit(TABLE, KINDS)
    found = clf.predict_proba([{"weight": 1, "brand": brand, "size": 5} for brand in ("new", None, "")])
    assert (found == found[0]).all()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"weight": "5,95", "brand": "Acme", "size": 5}, "the column 'weight' has '5,95', which is not a number"),
        ({"weight": 5, "brands": "Acme", "size": 5}, "X has no column 'brand'; did you mean 'brands'"),
        (5, "expected a table, a list of dictionaries or a 2-D array"),
    ],
)
def test_wrong_rows_of_numbers_and_categories_are_errors(row, message):
    with pytest.raises(InputError, match=message):
        matrix().fit(TABLE, KINDS).predict([row])
    with pytest.raises(InputError, match="X has no column 'brand'"):
        matrix().fit(np.ones((36, 3)), KINDS)
