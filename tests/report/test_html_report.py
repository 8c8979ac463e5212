"""The HTML report: what is in it, what is not, and what a browser makes of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from report_toy import CURVE, TREE, Page, balanced_tree, write_large_run, write_run
from typer.testing import CliRunner

import arbormax as am
from arbormax.cli.app import app
from arbormax.data.examples import Examples
from arbormax.errors import InputError, MissingDependencyError, OptionError
from arbormax.metrics import MEASURES, Measure
from arbormax.model.folder import format_metrics
from arbormax.report import report_html, write_report
from arbormax.studies.details import build_details
from browser import open_browser

EVIL = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A hierarchical and a flat run on the same texts, and their report."""
    place = tmp_path_factory.mktemp("two")
    runs = [write_run(place / "deep", seed=1, skill=3.0), write_run(place / "level", seed=2, head="flat")]
    return place, write_report(runs, place / "both.html"), Page((place / "both.html").read_text("utf-8"))


def test_a_report_has_every_section_and_loads_nothing(two):
    page = two[2]
    for part in ("summary", "compared", *(f"{name}-{run}" for run in (0, 1) for name in PARTS)):
        assert part in page.ids
    assert len(set(page.ids)) == len(page.ids)
    assert page.loads == []
    assert "was predicted as" in page.words
    assert "arbormax train x.csv" in page.words
    assert "text " in page.words


PARTS = ("tree", "confusion", "pairs", "levels", "calibration", "risk", "learning", "made")


def test_the_numbers_are_those_of_the_run(two):
    place, _, page = two
    metrics = json.loads((place / "deep" / "metrics.json").read_text("utf-8"))
    run = page.data["runs"][0]
    assert f"{100 * metrics['test']['accuracy']:.1f}\u202f%" in page.words
    assert [right / n for _, n, right in run["levels"]] == pytest.approx(metrics["test"]["level_accuracy"])
    assert sum(run["severity"]) == metrics["test"]["errors"]
    assert run["tree"]["support"][0] == 60
    assert run["curve"] == CURVE
    for matrix in run["matrices"]:
        cells = np.array(matrix["cells"])
        assert cells.sum() - np.trace(cells) == matrix["mistakes"] - matrix["outside"]


def test_a_calibrated_run_shows_reliability_before_and_after(two, tmp_path):
    place, _, page = two
    run = page.data["runs"][0]
    assert run["calibrated"]["before"] == run["calibrated"]["after"] == run["calibration"]
    assert "Calibration with the method parent on 60 held-out texts" in page.words
    metrics = json.loads((place / "deep" / "metrics.json").read_text("utf-8"))
    del metrics["calibration"]
    (tmp_path / "metrics.json").write_text(json.dumps(metrics), "utf-8")
    assert "Calibration with the method" not in report_html([tmp_path])


def test_a_run_that_was_trained_again_says_so(tmp_path):
    folder = write_run(tmp_path / "run")
    file = folder / "metrics.json"
    assert "The model has the weights of epoch 2" in report_html([folder])
    metrics = json.loads(file.read_text("utf-8"))
    metrics["training"]["refit_epochs"] = 3
    file.write_text(json.dumps(metrics), "utf-8")
    page = report_html([folder])
    assert "Epoch 2, which a line marks in the figures, is the best." in page
    assert "The model was then trained again on all texts, for 3 epochs." in page


def test_a_training_without_epochs_has_a_table_and_no_curves(tmp_path):
    folder = write_run(tmp_path / "run")
    file = folder / "metrics.json"
    metrics = json.loads(file.read_text("utf-8"))
    metrics["training"] |= {"curve": CURVE[:1], "refit_epochs": 1}
    file.write_text(json.dumps(metrics), "utf-8")
    page = report_html([folder])
    assert "Measures on the held-out texts, before the model was trained again on all texts" in page
    assert "after each epoch" not in page


def test_the_trials_of_a_search_are_a_table(tmp_path):
    folder = write_run(tmp_path / "run")
    file = folder / "metrics.json"
    metrics = json.loads(file.read_text("utf-8"))
    assert "searched for" not in report_html([folder])
    trial = {"settings": {"strength": 2.5, "ngrams": 3}, "seconds": 1.0, "measures": {"macro_f1": 0.75}, "error": None}
    metrics["tuning"] = {"best": 1, "seconds": 9.2, "trials": [trial | {"measures": {}}, trial]}
    file.write_text(json.dumps(metrics), "utf-8")
    page = report_html([folder])
    assert "searched for in 2 trials and 9 seconds" in page
    assert "2 (best)" in page
    assert "0.7500" in page
    metrics["tuning"]["trials"] = [3]
    file.write_text(json.dumps(metrics), "utf-8")
    assert "searched for" not in report_html([folder])


def test_runs_on_the_same_texts_are_compared(two):
    place, _, page = two
    values = [json.loads((place / name / "metrics.json").read_text("utf-8"))["test"] for name in ("deep", "level")]
    for row, name in zip(page.data["differences"], ("accuracy", "macro_f1", "hf"), strict=True):
        assert row["label"] == "deep − level"
        assert row["mean"] == pytest.approx(100 * (values[0][name] - values[1][name]), abs=1e-3)
        assert row["low"] <= row["mean"] <= row["high"]
    assert "Difference from the flat run, level" in page.words


def test_the_title_names_the_runs_the_baseline_and_the_test_texts(two, tmp_path):
    assert "deep compared with level on toys" in two[2].words

    def tested_on(name, test):
        metrics = json.loads((two[0] / name / "metrics.json").read_text("utf-8"))
        metrics["data"]["test"] = test
        folder = tmp_path / test / name
        folder.mkdir(parents=True)
        (folder / "metrics.json").write_text(json.dumps(metrics), "utf-8")
        return folder

    renamed = [tested_on(name, "held-out.csv") for name in ("deep", "level")]
    title = "<title>deep compared with level on held-out.csv</title>"
    assert title in report_html(renamed)
    assert "<title>deep on held-out.csv</title>" in report_html(renamed[:1])
    other = tested_on("level", "other.csv")
    assert "<title>deep compared with level</title>" in report_html([renamed[0], other])


def test_every_figure_states_how_many_texts_it_shows(two):
    html = two[1].read_text("utf-8")
    notes = re.findall(r'data-plot="(\w+)".*?<figcaption>(.*?)</figcaption>', html)
    kinds = ["icicle", "levels", "severity", "calibration", "before", "after", "risk", "differences"]
    for kind in kinds:
        found = [note for own, note in notes if own == kind]
        assert found, kind
        assert all("n = " in note or "n is the number" in note for note in found), kind


def test_bins_and_levels_with_few_texts_are_omitted(two, tmp_path):
    run = two[2].data["runs"][0]
    assert all(n >= 20 for level in run["calibration"] for n in level["n"])
    assert all(n >= 20 for _, n, _ in run["levels"])
    few = Page(report_html([write_run(tmp_path / "few", texts=19)]))
    assert few.data["runs"][0]["levels"] == []
    assert "No level has 20 test texts." in few.words
    assert "No bin has 20 test texts." in few.words


def test_a_single_run_mentions_the_missing_flat_run(two):
    words = Page(report_html([two[0] / "deep"], title="My <report>")).words
    assert "There is no flat run to compare with" in words
    assert "My <report>" in words


def test_runs_on_other_texts_are_not_compared(two, tmp_path):
    other = write_run(tmp_path / "other", texts=40)
    page = Page(report_html([two[0] / "level", other]))
    assert page.data["differences"] == []
    assert "because they were evaluated on other texts than level: other" in page.words


def test_names_and_texts_are_escaped(tmp_path):
    tax = am.Taxonomy.from_nested({EVIL: ["a\u2028b", "<b>bold</b>"], "&amp;": ["$x$", "%{label}"]})
    html = report_html([write_run(tmp_path / "evil", tax, said=EVIL, skill=0.0)], title=EVIL)
    page = Page(html)
    assert html.count("<script") == 3 + html.count('"<script')
    assert EVIL not in html
    assert page.data["runs"][0]["tree"]["name"].count(EVIL) == 1
    assert page.loads == []
    assert "<b>bold</b>" in page.words


def test_two_thousand_classes_fit_in_ten_megabytes(tmp_path):
    html = report_html([write_large_run(tmp_path / "big", balanced_tree(20, 10, 10), 5000)])
    assert len(html.encode()) < 10e6
    assert len(Page(html).data["runs"][0]["tree"]["name"]) == 1 + 20 + 200 + 2000


def test_seventy_five_thousand_classes_are_folded_in_seconds(tmp_path):
    folder = write_large_run(tmp_path / "huge", balanced_tree(25, 30, 100), 5000)
    start = time.perf_counter()
    html = report_html([folder])
    assert time.perf_counter() - start < 30
    assert len(html.encode()) < 10e6
    tree = Page(html).data["runs"][0]["tree"]
    assert 3000 < len(tree["name"]) <= 4000
    below = [[child for child, parent in enumerate(tree["parent"]) if parent == place] for place in range(30)]
    for place, children in enumerate(below):
        if children:
            for name in ("classes", "support", "predicted"):
                assert sum(tree[name][child] for child in children) == tree[name][place]
    assert tree["classes"][0] == 75_000


@pytest.mark.parametrize("most", [10, 11, 60, 400])
def test_a_folded_tree_keeps_its_sums_and_its_limit(tmp_path, most):
    html = report_html([write_large_run(tmp_path / "wide", balanced_tree(200, 3), 500)], max_nodes=most)
    tree = Page(html).data["runs"][0]["tree"]
    assert len(tree["name"]) <= most
    top = [place for place, parent in enumerate(tree["parent"]) if parent == 0]
    assert sum(tree["support"][place] for place in top) == 500
    assert any(name.endswith("more") for name in tree["name"])


def test_a_comparison_is_reported_with_its_own_intervals(tmp_path):
    draw = np.random.default_rng(0)
    examples = Examples(["a text"] * 30, TREE.leaves[draw.integers(7, size=30)])
    rows = {head: TREE.leaves[draw.integers(7, size=(2, 30))] for head in ("flat", "hierarchical")}
    table = {"accuracy": {"mean": 0.5, "std": 0.01}, "seconds": {"mean": 2.0, "std": None}}
    results = {
        "heads": list(rows),
        "seeds": [0, 1],
        "table": dict.fromkeys(rows, table),
        "records": [{"head": "flat", "curve": CURVE}],
        "differences": [
            {
                "head": "hierarchical",
                "baseline": "flat",
                "measure": "macro_f1",
                "mean": 0.02,
                "low": 0.01,
                "high": 0.03,
                "level": 0.9,
            }
        ],
        "details": {head: build_details(examples, predicted, TREE) for head, predicted in rows.items()},
    }
    (tmp_path / "results.json").write_text(format_metrics(results), "utf-8")
    page = Page(report_html([tmp_path]))
    assert "hierarchical, macro-F1: +2.0 points [+1.0, +3.0], better" in page.words
    assert "50.0\u202f% ± 1.0" in page.words
    assert "All counts are totals over 2 seeds" in page.words
    assert "30 test texts" in page.words
    assert page.data["runs"][0]["curve"] == CURVE
    assert page.data["runs"][1]["answers"] is None
    del results["details"]
    (tmp_path / "results.json").write_text(format_metrics(results), "utf-8")
    with pytest.raises(InputError, match="run the comparison again"):
        report_html([tmp_path])


def test_a_run_without_mistakes_is_reported(tmp_path):
    words = Page(report_html([write_run(tmp_path / "good", skill=40.0)])).words
    assert "100.0\u202f% of the test texts get exactly the right class" in words
    assert words.count("There are no mistakes to show") == 2


def broken(folder: Path, change) -> Path:
    """A copy of a run's file with something changed."""
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    change(metrics)
    path = folder / "broken.json"
    path.write_text(json.dumps(metrics), "utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("details"), "no details.*arbormax evaluate"),
        (lambda m: m.pop("test"), "not evaluated on test texts.*arbormax evaluate"),
        (lambda m: m["details"].update(format=99), "format 99.*update"),
        (lambda m: m["details"].pop("tree"), "'tree' is missing|'names' is missing"),
        (lambda m: m["details"]["tree"]["names"].pop(), "names of"),
        (lambda m: m["details"]["tree"].update(children=[0] * 14), "do not form a tree"),
        (lambda m: m["details"]["tree"].update(support=[-1] * 14), "numbers from 0"),
        (lambda m: m["details"]["tree"].update(support=["<script>"] * 14), "whole numbers"),
        (lambda m: m["details"]["confusions"].update(pairs=[[0, 999, 1]]), "confusions name nodes"),
        (lambda m: m["details"]["items"].update(true="AAAA"), "cannot be unpacked"),
        (lambda m: m["details"]["items"].update(count=7), "expected 7 items"),
        (lambda m: m["details"]["answers"].update(right=[[1]]), "expected 100 × 4 numbers"),
    ],
)
def test_invalid_details_raise_an_error_with_a_reason(two, change, message):
    with pytest.raises(InputError, match=message):
        report_html([broken(two[0] / "deep", change)])


def test_anything_but_a_run_raises_an_error(two, tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "cut.json").write_text('{"a": ')
    for path, message in (
        (tmp_path, "is not a run"),
        (tmp_path / "none", "no such file or folder"),
        (tmp_path / "list.json", "expected a JSON object"),
        (tmp_path / "cut.json", "not valid JSON"),
    ):
        with pytest.raises(InputError, match=message):
            report_html([path])
    deep = two[0] / "deep"
    with pytest.raises(InputError, match="at least one run"):
        write_report([])
    with pytest.raises(OptionError, match="is a folder"):
        write_report([deep], tmp_path)
    for run in (deep, deep / "metrics.json"):
        with pytest.raises(OptionError, match="would be overwritten"):
            write_report([run], deep / "metrics.json")
    with pytest.raises(InputError, match="at most 12 runs"):
        report_html([deep] * 13)


def test_a_registered_measure_is_a_row_of_the_report(tmp_path):
    measure = Measure("near", "near misses", "share", "higher", per_item=lambda true, pred, tax: true != pred)
    MEASURES.add("near", measure)
    try:
        one, other = write_run(tmp_path / "one"), write_run(tmp_path / "other", seed=5, head="flat")
        value = json.loads((one / "metrics.json").read_text("utf-8"))["test"]["near"]
        for runs in ([one], [one, other]):
            page = Page(report_html(runs))
            assert "Near misses" in page.words
            assert f"{100 * value:.1f}\u202f%" in page.words
        assert "near misses" in {row["measure"] for row in page.data["differences"]}
    finally:
        MEASURES.remove("near")


def test_runs_of_the_same_name_get_a_number(two):
    names = [run["name"] for run in Page(report_html([two[0] / "deep"] * 2)).data["runs"]]
    assert names == ["deep", "deep (2)"]


def test_the_command_writes_next_to_the_run_and_prints_the_path(two, tmp_path):
    folder = write_run(tmp_path / "own")
    results = CliRunner().invoke(app, ["report", str(folder)], prog_name="arbormax")
    assert results.exit_code == 0, results.output
    assert str(folder / "report.html") in results.output.replace("\n", "")
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.json", "report.html"]
    refused = CliRunner().invoke(app, ["report", str(tmp_path / "none")], prog_name="arbormax")
    assert refused.exit_code == 2
    assert "no such file or folder" in refused.output


def test_the_command_works_where_torch_cannot_be_imported(two, tmp_path):
    script = "import sys; sys.modules['torch'] = sys.modules['pytorch_lightning'] = None; import arbormax.cli; "
    script += f"sys.argv = ['arbormax', 'report', {str(two[0] / 'deep')!r}, '--out', {str(tmp_path / 'r.html')!r}]; "
    script += "arbormax.cli.main()"
    results = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert results.returncode == 0, results.stderr
    assert "summary" in Page((tmp_path / "r.html").read_text("utf-8")).ids


def test_the_error_for_a_missing_plotly_names_the_extra(two, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingDependencyError, match=r"arbormax\[report\]"):
        report_html([two[0] / "deep"])


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


def opened(browser, path, **options):
    """The page, and the list of what it complains about."""
    page = browser.new_context(reduced_motion="reduce", **options).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else complaints.append(request.url),
    )
    page.goto(path.as_uri())
    return page, complaints


def seen_whole(page):
    """Every figure of the page drawn, as by someone who reads it to its end."""
    for figure in page.query_selector_all("[data-plot]"):
        if figure.is_visible():
            figure.scroll_into_view_if_needed()
            page.wait_for_function("element => element.dataset.drawn === 'yes'", arg=figure)


def test_the_page_draws_zooms_and_follows_the_slider(two, browser):
    page, complaints = opened(browser, two[1], viewport={"width": 1100, "height": 800})
    seen_whole(page)
    assert page.locator(".run:not([hidden]) .main-svg").count() >= 8
    icicle, open_node = page.locator('[data-plot="icicle"][data-run="0"]'), page.locator('[data-browser="0"] .crumbs')
    icicle.scroll_into_view_if_needed()
    box, label = icicle.bounding_box(), icicle.locator(".bartext", has_text="plant").first.bounding_box()
    page.mouse.click(label["x"] + label["width"] / 2, label["y"] + label["height"] / 2)
    open_node.get_by_text("plant", exact=True).wait_for()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)  # the strip of the open node
    open_node.get_by_text("plant", exact=True).wait_for(state="detached")
    page.locator('[data-browser="0"] th button', has_text="plant").press("Enter")
    page.locator('[data-browser="0"] button', has_text="all classes").press("Enter")
    page.locator('[data-browser="0"] th button', has_text="animal").press("Enter")
    assert page.locator('[data-browser="0"] strong').inner_text() == "animal"
    before = page.locator('[data-live="0"]').inner_text()
    page.locator("#tau-0").fill("95")
    assert page.locator('[data-out="0"]').inner_text() == "95\u202f%"
    assert page.locator('[data-live="0"]').inner_text() != before
    page.locator("#colour-0").select_option("f1")
    page.locator("#run").select_option("1")
    assert page.locator("#tree-1").is_visible()
    assert not page.locator("#tree-0").is_visible()
    assert complaints == []


def test_the_page_fits_the_width_of_a_phone(two, browser):
    page, complaints = opened(browser, two[1], viewport={"width": 360, "height": 740})
    seen_whole(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert complaints == []


def test_names_with_markup_are_harmless_in_a_browser(tmp_path, browser):
    tax = am.Taxonomy.from_nested({EVIL: ["a\u2028b", "<b>bold</b>"], "&amp;": ["$x$", "%{label}"]})
    page, complaints = opened(
        browser, write_report([write_run(tmp_path / "evil", tax, said=EVIL, skill=0.0)], title=EVIL)
    )
    seen_whole(page)
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.images.length") == 0
    assert complaints == []


def test_one_text_and_few_thresholds_are_shown(tmp_path, browser):
    folder = write_run(tmp_path / "tiny", texts=1, skill=0.0)

    def cut(metrics):
        metrics["details"]["answers"] = {name: part[:3] for name, part in metrics["details"]["answers"].items()}

    path = broken(folder, cut)
    page, complaints = opened(browser, write_report([path]))
    assert page.locator('[data-out="0"]').inner_text() == "2\u202f%"
    assert "1 test text, " in page.locator('[data-browser="0"]').inner_text()
    assert complaints == []


@pytest.mark.slow
def test_axe_finds_no_serious_defect_in_both_themes(two, browser):
    from axe_playwright_python.sync_playwright import Axe

    page, _ = opened(browser, two[1], color_scheme="light", bypass_csp=True)
    seen_whole(page)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    paper = "getComputedStyle(document.body).backgroundColor"

    def serious(**options):
        found = Axe().run(page, options=options or None).response["violations"]
        return [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]

    assert serious() == []
    light = page.evaluate(paper)
    page.locator(".theme label", has_text="Dark").click()
    assert int(re.findall(r"\d+", page.evaluate(paper))[0]) < 60 < int(re.findall(r"\d+", light)[0])
    assert serious(runOnly=["color-contrast"]) == []
