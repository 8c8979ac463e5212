"""The service and the page of a model that was calibrated with coverage."""

from copy import deepcopy
from dataclasses import replace
from urllib.parse import quote

import httpx
import pytest
from page_tools import ENDINGS, WORDS, Visit, serving, tiny_model
from serve_tools import problem, served

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.uncertainty import calibrate
from arbormax.uncertainty.conformal import climbing_threshold, coverage_table, predict_sets


@pytest.fixture(scope="module")
def covered():
    """A model with guaranteed coverage, whose held-out texts are hard."""
    model = deepcopy(tiny_model())  # others use it, too
    texts = [f"{word} {end}" for words in WORDS.values() for word in words.split() for end in ENDINGS]
    labels = [label for label, words in WORDS.items() for _ in words.split() for _ in ENDINGS]
    hard = [text.split()[-1] if place % 4 == 0 else text for place, text in enumerate(texts)]
    calibrate(model, Examples(hard, model.taxonomy.find_many(labels)), "temperature", coverage=0.8)
    return model


def test_a_request_with_a_coverage_is_answered_by_the_lowest_node_that_has_it(covered):
    tau = climbing_threshold(covered, 0.9)
    with served(covered) as client:
        for text in ("a river", "what is it", "song of a mountain"):
            body = {"text": text, "coverage": 0.9}
            [found] = client.post("/v1/predict", json=body).json()["predictions"]
            [expected] = am.decode.climb(next(iter(covered.node_log_probs([text]))), covered.taxonomy, tau).tolist()
            assert found["node"] == expected
            assert client.post("/v1/explain", json=body).json()["node"] == expected
        info = client.get("/v1/model").json()["coverage"]
        assert (info["items"], info["target"]) == (len(covered.coverage.nodes), 0.8)
        assert dict(map(tuple, info["thresholds"]))[0.9] == pytest.approx(tau)
        assert info["guaranteed"]
        for more in ({"tau": 0.5}, {"decoder": "leaf"}, {"within": ["place"]}):
            problem(client.post("/v1/predict", json={"text": "a river", "coverage": 0.9, **more}), 422)
        content = problem(client.post("/v1/predict", json={"text": "a river", "coverage": 0.999}), 422)
        assert "at least 999 items" in str(content)


def test_a_model_without_held_out_scores_says_how_to_get_them(model):
    with served(model) as client:
        assert client.get("/v1/model").json()["coverage"] is None
        content = problem(client.post("/v1/predict", json={"text": "a", "coverage": 0.9}), 422)
    assert "calibrate it with coverage" in str(content)


def test_the_slider_of_a_covered_model_sets_the_coverage(covered, browser):
    with serving(covered) as address:
        visit = Visit(browser, address)
        page = visit.open(f"text={quote('song of a mountain')}")
        page.wait_for_function("document.querySelector('#tau-name').textContent.includes('coverage')")
        page.wait_for_selector("#tree [role=treeitem]")
        assert page.inner_text("#tau-value") == "80%"  # the default coverage
        for coverage in (0.6, 0.7, 0.9):
            body = {"text": "song of a mountain", "coverage": coverage}
            [found] = httpx.post(f"{address}v1/predict", json=body).json()["predictions"]
            page.locator("#tau").fill(str(round(100 * coverage)))
            expected = found["path"][-1] if found["path"] else "No prediction"
            page.wait_for_function("name => document.querySelector('#stop').textContent.includes(name)", arg=expected)
            assert page.inner_text("#tau-value") == f"{round(100 * coverage)}%"
        assert not visit.errors


def test_a_request_asks_for_a_set_of_nodes(covered):
    tax = covered.taxonomy
    texts = ["song of a mountain", "what is it"]
    with served(covered) as client:
        for options in (
            {"max_nodes": 3},
            {"max_nodes": 2, "groups": "branch"},
            {"groups": dict.fromkeys(tax.classes, "g")},
        ):
            body = {"texts": texts, "coverage": 0.7, **options}
            found = client.post("/v1/predict", json=body).json()["predictions"]
            known = {"max_nodes": options.get("max_nodes", 1), "groups": options.get("groups")}
            for row, nodes in zip(found, predict_sets(covered, texts, 0.3, **known), strict=True):
                assert row["set"] == [tax.label(node) for node in nodes]
        assert (
            "set" not in client.post("/v1/predict", json={"text": "a river", "coverage": 0.7}).json()["predictions"][0]
        )
        content = problem(client.post("/v1/predict", json={"text": "a river", "max_nodes": 3}), 422)
        assert "coverage" in str(content)
        problem(client.post("/v1/predict", json={"text": "a river", "coverage": 0.7, "max_nodes": 6}), 422)


def test_the_page_shows_the_set_of_the_coverage(covered, browser):
    text = "song of a mountain"
    [nodes] = predict_sets(covered, [text], 0.2, 3)
    with serving(covered) as address:
        visit = Visit(browser, address)
        page = visit.open(f"text={quote(text)}")
        page.wait_for_function("() => document.querySelector('#set').textContent !== ''")
        shown = page.inner_text("#set").replace("\u2068", "").replace("\u2069", "")
        names = ", ".join(covered.taxonomy.label(node) or "all classes" for node in nodes)
        assert shown == f"With at most 3 nodes: {names}."
        visit.close()


def estimated(model):
    """The model as after a training, which measures the coverage on texts that it is trained on later."""
    model = deepcopy(model)
    model.coverage = replace(model.coverage, scores=model.coverage.scores[:, :1], target=None, is_estimate=True)
    return model


def test_a_request_cannot_ask_for_a_coverage_that_is_only_estimated(covered):
    with served(estimated(covered)) as client:
        info = client.get("/v1/model").json()["coverage"]
        assert (info["guaranteed"], info["most_in_branches"]) == (False, None)
        content = problem(client.post("/v1/predict", json={"text": "a", "coverage": 0.9}), 422)
    assert "no held-out scores" in str(content)


def test_the_page_says_whether_the_coverage_is_guaranteed_or_estimated(covered, browser):
    text = "song of a mountain"
    with serving(covered) as address:
        visit = Visit(browser, address)
        page = visit.open(f"text={quote(text)}")
        page.wait_for_function("() => document.querySelector('#guarantee').textContent.startsWith('Guarantee:')")
        assert f"{len(covered.coverage.nodes)} texts" in page.inner_text("#guarantee")
        visit.close()
    with serving(estimated(covered)) as address:
        tau = dict(map(tuple, httpx.get(f"{address}v1/model").json()["coverage"]["thresholds"]))[0.9]
        body = {"text": text, "decoder": "climb", "tau": tau}
        [found] = httpx.post(f"{address}v1/predict", json=body).json()["predictions"]
        visit = Visit(browser, address)
        page = visit.open(f"text={quote(text)}")
        page.wait_for_function("() => document.querySelector('#guarantee').textContent.includes('not a guarantee')")
        assert page.inner_text("#tau-name") == "Estimated coverage: "
        assert page.inner_text("#tau-value") == "90%"  # without a default coverage
        assert (found["path"] or ["No prediction"])[-1] in page.inner_text("#stop")
        assert page.is_hidden("#sets")
        visit.close()


def test_the_page_explains_why_the_prediction_for_a_coverage_stops(covered, browser):
    text = "song of a mountain"
    with serving(covered) as address:
        reason = httpx.post(f"{address}v1/explain", json={"text": text, "coverage": 0.9}).json()["reason"]
        assert reason.startswith("With a coverage of 90 % (a probability above ")
        visit = Visit(browser, address)
        page = visit.open(f"text={quote(text)}&tau=0.9")
        page.wait_for_function("reason => document.querySelector('#reason').textContent === reason", arg=reason)
        visit.close()


def test_the_page_chooses_the_size_of_the_set_and_the_coverage_of_branches(covered, browser):
    text, tax = "song of a mountain", covered.taxonomy
    most = coverage_table(covered)["most_in_branches"]
    assert 0.7 < most < 0.99
    with serving(covered) as address:
        visit = Visit(browser, address)
        page = visit.open(f"text={quote(text)}&tau=0.7")
        page.wait_for_selector("#in-branches:visible")

        def wait_for(nodes, start):
            names = ", ".join(tax.label(node) or "all classes" for node in nodes)
            shown = "() => document.querySelector('#set').textContent.replaceAll(/[\u2068\u2069]/g, '')"
            page.wait_for_function(f"expected => ({shown})() === expected", arg=f"{start}: {names}.")

        page.select_option("#set-nodes", "1")
        wait_for(*predict_sets(covered, [text], 0.3, 1), "With at most 1 node")
        page.check("#branches")
        page.select_option("#set-nodes", "4")
        wait_for(*predict_sets(covered, [text], 0.3, 4, groups="branch"), "With at most 4 nodes, in every branch")
        page.locator("#tau").fill(str(round(100 * most) + 1))
        page.wait_for_function(
            "() => document.querySelector('#set').textContent.includes('held-out items in each group')"
        )
        visit.errors.clear()  # Chromium reports the status 422
        visit.close()


def test_a_table_gets_the_sets_of_a_guaranteed_coverage(covered, browser):
    texts = ["song of a mountain", "the old river"]
    with serving(covered) as address:
        visit = Visit(browser, address)
        page = visit.open("view=table")
        page.wait_for_selector("#decoder option[value=coverage]", state="attached")
        page.fill("#paste", "text\n" + "\n".join(texts))
        page.select_option("#decoder", "coverage")
        page.fill("#decoder-options [name=coverage]", "0.8")
        page.press("#decoder-options [name=coverage]", "Tab")
        page.click("#predict-start")
        page.wait_for_selector("#save:visible", timeout=20_000)
        assert page.locator("#table-settings thead th").all_inner_texts() == [
            "text",
            "label",
            "path",
            "probability",
            "set",
        ]
        cells = page.locator("#table-settings tbody td:nth-child(5)").all_inner_texts()
        sets = predict_sets(covered, texts, 0.2, 3)
        assert cells == [";".join(covered.taxonomy.label(node) for node in nodes) for nodes in sets]
        visit.close()
