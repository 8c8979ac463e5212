"""Choosing a decoder and costs on the web page."""

from urllib.parse import quote

import httpx
import pytest
from page_tools import Visit, serving, tiny_model

from arbormax import decode

TEXT = "king of the river"


@pytest.fixture(scope="module")
def address(browser):
    with serving(tiny_model()) as found:
        yield found


def wait_for_label(page, label):
    page.wait_for_function("label => document.querySelector('#label').textContent.endsWith(label)", arg=label)


def cost_table(delimiter=","):
    """Costs in another order than that of the model, and the class that they make the best."""
    tax = tiny_model().taxonomy
    order = ["river", "king", *(name for name in tax.classes if name not in ("river", "king"))]
    costs = {row: {column: float(row != column) for column in order} for row in order}
    costs["river"]["king"] = 30.0  # so that the most probable class is a bad prediction
    rows = [["predicted", *order], *([row, *(f"{value:g}" for value in costs[row].values())] for row in order)]
    cells = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in rows]
    logp = next(tiny_model().node_log_probs([TEXT]))
    [best] = decode.optimal(logp, tax, "risk", costs=costs).tolist()
    return "\n".join(map(delimiter.join, cells)), tax.names[best]


def choose_risk(page, name="text-decoder"):
    page.select_option(f"#{name}", "optimal")
    page.select_option(f"#{name}-options [name=metric]", "risk")


def test_one_text_is_predicted_with_the_chosen_decoder(visit, address):
    page = visit.open(f"text={quote(TEXT)}")
    wait_for_label(page, "river")
    page.click("#decoding summary")
    names = page.eval_on_selector_all("#text-decoder option", "all => all.map(option => option.value)")
    assert names == ["", *(each["name"] for each in httpx.get(f"{address}v1/model").json()["decoders"])]
    page.select_option("#text-decoder", "threshold")
    page.fill("#text-decoder-options [name=tau]", "0.55")
    page.press("#text-decoder-options [name=tau]", "Tab")
    body = {"text": TEXT, "decoder": "threshold", "tau": 0.55}
    found = httpx.post(f"{address}v1/explain", json=body).json()
    wait_for_label(page, found["path"][-1])
    page.wait_for_function("reason => document.querySelector('#reason').textContent === reason", arg=found["reason"])
    assert page.is_hidden("#slider")
    assert page.get_attribute("#tree .stop", "data-node") == str(found["node"])
    page.wait_for_function("() => location.hash.includes('decoder=threshold')")
    page.reload()
    wait_for_label(page, found["path"][-1])
    assert page.input_value("#text-decoder-options [name=tau]") == "0.55"
    page.fill("#text-decoder-options [name=tau]", "0.999")
    page.press("#text-decoder-options [name=tau]", "Tab")
    wait_for_label(page, "No prediction")
    assert page.inner_text("#confidence") == "The decoder stops at the root."
    page.select_option("#text-decoder", "")
    wait_for_label(page, "river")
    assert page.is_visible("#slider")


def test_only_the_options_of_the_selected_metric_are_shown(visit):
    page = visit.open(f"text={quote(TEXT)}")
    page.click("#decoding summary")
    page.select_option("#text-decoder", "optimal")
    for metric, shown in (("hf", ["beta"]), ("information", ["lam"]), ("risk", []), ("tree_distance", [])):
        page.select_option("#text-decoder-options [name=metric]", metric)
        visible = page.locator("#text-decoder-options input[type=number]:visible")
        assert visible.evaluate_all("all => all.map(input => input.name)") == shown
        assert page.is_visible("#text-decoder-options textarea") == (metric == "risk")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_pasted_costs_decide(visit, delimiter):
    text, best = cost_table(delimiter)
    assert best != "river"
    page = visit.open(f"text={quote(TEXT)}")
    wait_for_label(page, "river")
    page.click("#decoding summary")
    choose_risk(page)
    page.fill("#text-decoder-options textarea", text)
    page.press("#text-decoder-options textarea", "Tab")
    wait_for_label(page, best)


def test_costs_are_read_from_a_file_also_for_tables(visit):
    text, best = cost_table()
    page = visit.open("view=table")
    page.fill("#paste", f"text\n{TEXT}\nthe old city\n")
    choose_risk(page, "decoder")
    file = {"name": "costs.csv", "mimeType": "text/csv", "buffer": text.encode("utf-16")}
    page.set_input_files("#decoder-options input[type=file]", file)
    page.wait_for_function("() => document.querySelector('#decoder-options textarea').value !== ''")
    page.click("#predict-start")
    page.wait_for_selector("#save:visible", timeout=20_000)
    assert page.locator("#table-settings tbody td:nth-child(2)").all_inner_texts() == [best, "city"]


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ("predicted,king,river\nking,0,1\nsinger,1,0\n", "One of them is missing for: river, singer."),
        ("predicted,king,river\nking,0,much\nriver,1,0\n", "of predicting king for river is not a number"),
        ("0,1\n1,0\n", "at least 8 items"),
    ],
)
def test_wrong_costs_are_reported(visit, costs, message):
    page = visit.open(f"text={quote(TEXT)}")
    wait_for_label(page, "river")
    page.click("#decoding summary")
    choose_risk(page)
    page.fill("#text-decoder-options textarea", costs)
    page.press("#text-decoder-options textarea", "Tab")
    page.wait_for_selector("#problem:visible")
    assert message in page.inner_text("#problem-message")
    visit.errors.clear()  # Chromium reports the status 422
    page.fill("#text-decoder-options textarea", "")
    page.press("#text-decoder-options textarea", "Tab")
    page.wait_for_selector("#problem", state="hidden")


def test_a_model_with_too_many_classes_takes_no_costs(browser):
    with serving(tiny_model(), max_cost_classes=7) as address:
        visit = Visit(browser, address)
        page = visit.open(f"text={quote(TEXT)}")
        page.click("#decoding summary")
        choose_risk(page)
        assert "costs of at most 7 classes" in page.inner_text("#text-decoder-options")
        visit.close()
