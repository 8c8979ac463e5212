"""The uncertainty of each step on the web page."""

from urllib.parse import quote

import httpx
import pytest
from page_tools import Visit, serving, tiny_model, uncertain_model

TEXT = "king of the river"


@pytest.fixture
def open_page(browser):
    visits = []

    def open_at(address):
        visits.append(Visit(browser, address))
        page = visits[-1].open(f"text={quote(TEXT)}")
        page.wait_for_selector("#steps label")
        return page

    yield open_at
    for visit in visits:
        visit.close()


def test_each_step_shows_how_much_its_probability_differs_between_draws(open_page):
    with serving(uncertain_model()) as address:
        page = open_page(address)
        steps = httpx.post(f"{address}v1/explain", json={"text": TEXT}).json()["steps"]
        shown = page.locator("#steps small")
        assert shown.all_inner_texts() == [f"± {100 * step['uncertainty']['std']:.1f}" for step in steps]
        assert "percentage points between draws of the model" in shown.first.get_attribute("title")
        page.click("#steps label:nth-child(1)")
        assert "More training texts could remove" in page.inner_text("#step-text")


def test_a_model_without_uncertainty_shows_none(open_page):
    with serving(tiny_model()) as address:
        page = open_page(address)
        assert page.locator("#steps small").count() == 0
        assert "draws" not in page.inner_text("#step-text")
