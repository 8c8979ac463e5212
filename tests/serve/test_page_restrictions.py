"""Restricted classes and reasons on the web page."""

from urllib.parse import quote

import httpx
import pytest
from page_tools import serving, tiny_model

TEXT = "king of the river"


@pytest.fixture(scope="module")
def address(browser):
    with serving(tiny_model()) as found:
        yield found


def wait_for_label(page, label):
    page.wait_for_function("label => document.querySelector('#label').textContent.endsWith(label)", arg=label)


def test_the_page_restricts_the_classes_and_its_link_does_too(visit):
    page = visit.open(f"text={quote(TEXT)}")
    wait_for_label(page, "river")
    page.click("#restriction summary")
    page.fill("#within", "person\nplace/built")
    wait_for_label(page, "king")
    page.fill("#without", "king\nplace")
    wait_for_label(page, "singer")
    assert page.inner_text("#probability") == "100%"
    page.wait_for_function("() => location.hash.includes('without=')")
    page.reload()
    wait_for_label(page, "singer")
    assert page.input_value("#within") == "person\nplace/built"
    page.fill("#within", "")
    page.fill("#without", "")
    wait_for_label(page, "river")


def test_the_page_says_why_a_prediction_stops(visit, address):
    page = visit.open(f"text={quote(TEXT)}&tau=0.55")
    body = {"text": TEXT, "tau": 0.55, "decoder": "threshold"}
    reason = httpx.post(f"{address}v1/explain", json=body).json()["reason"]
    assert reason.startswith("With a threshold of 55 %, the prediction stops at ")
    page.wait_for_function("reason => document.querySelector('#reason').textContent === reason", arg=reason)
    page.locator("#tau").fill("10")
    page.wait_for_function("() => document.querySelector('#reason').textContent === ''")


def test_a_column_of_a_table_restricts_each_row(visit):
    page = visit.open("view=table")
    rows = [f"{TEXT},person; built", f"{TEXT},", f"{TEXT},singer"]
    page.fill("#paste", "text,where\n" + "\n".join(rows))
    page.select_option("#within-column", label="where")
    page.click("#predict-start")
    page.wait_for_selector("#save:visible", timeout=20_000)
    cells = page.locator("#table-settings tbody td:nth-child(3)").all_inner_texts()
    assert cells == ["king", "river", "singer"]
