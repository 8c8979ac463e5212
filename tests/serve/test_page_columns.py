"""Tables on the web page of a model that was trained on several columns."""

import pytest
from page_tools import Visit, serving

import arbormax as am

ROWS = [
    {"name": name, "about": "a thing", "brand": brand} for name, brand in [("scarf", "Acme"), ("scarf", "Bolt")]
] * 20
LABELS = ["shop", "sport"] * 20  # the brand alone decides


@pytest.fixture(scope="module")
def address(browser):
    tree = {"goods": ["shop", "sport"]}
    clf = am.TextClassifier(tree, text_columns=["name", "about"], also=["brand"]).fit(ROWS, LABELS)
    with serving(clf.model_, max_characters=80) as found:
        yield found


@pytest.fixture
def page(browser, address):
    visit = Visit(browser, address)
    yield visit.open("view=table")
    visit.close()


def labels(page, column):
    page.click("#predict-start")
    page.wait_for_selector("#save:visible", timeout=20_000)
    return page.locator(f"#table-settings tbody td:nth-child({column})").all_inner_texts()


def test_the_columns_of_the_model_are_found_by_their_names(page):
    long = "scarf " * 40
    rows = ["Bolt;9;scarf;a thing", "Acme;9;scarf;", "Acme;9;;", f"Bolt;9;{long};a thing"]
    page.fill("#paste", "brand;price;name;about\n" + "\n".join(rows))
    assert page.locator("#column option:checked").inner_text() == "name, about, brand"
    assert page.locator("#table-settings th.chosen").all_inner_texts() == ["brand", "name", "about"]
    assert labels(page, 5) == ["sport", "shop", "", "sport"]
    status = page.inner_text("#predict-status")
    assert "1 empty row without a prediction" in status
    assert "1 text truncated to 80 characters" in status


def test_a_table_without_one_of_the_columns_has_one_column_of_texts(page):
    page.fill("#paste", "name;price\nscarf;9\nscarf;8")
    assert page.locator("#column option").all_inner_texts() == ["name", "price"]
    assert len(labels(page, 3)) == 2


def test_a_header_with_the_columns_of_the_model_is_always_one(page):
    page.fill("#paste", "name;about;brand\nname;about;Bolt")
    assert labels(page, 4) == ["sport"]
