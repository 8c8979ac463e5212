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
