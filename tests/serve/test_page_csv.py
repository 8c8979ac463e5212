"""Tables on the web page: reading CSV files, predicting their texts, and the resulting file."""

import csv
import io
import json

import httpx
import pytest
from page_tools import Visit, serving, tiny_model

SEMICOLONS = '\ufeffid;text;note\r\n1;"the old city; ""big""";"=SUM(A1)"\r\n2;"a river\r\nflows";\r\n3;;none\r\n'


@pytest.fixture(scope="module")
def address(browser):
    with serving(tiny_model(), max_texts=4, max_characters=60) as found:
        yield found


@pytest.fixture
def visit(browser, address):
    visit = Visit(browser, address)
    visit.open("view=table")
    yield visit
    visit.close()


@pytest.fixture(scope="module")
def module(browser, address):
    visit = Visit(browser, address)
    yield visit.open("view=table")
    visit.close()


def in_csv(page, call, given=None):
    """The result of a function of csv.js."""
    return page.evaluate(f"async given => {{ const csv = await import('/static/csv.js'); return {call}; }}", given)


def classify(page):
    """Classify the table; return the content and the name of the downloaded file."""
    page.click("#predict-start")
    page.wait_for_selector("#save:visible", timeout=20_000)
    with page.expect_download() as download:
        page.click("#save")
    with open(download.value.path(), encoding="utf-8", newline="") as file:
        return file.read(), download.value.suggested_filename


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("a,b\n1,2", [["a", "b"], ["1", "2"]]),
        ("a,b\r\n1,\r\n", [["a", "b"], ["1", ""]]),
        ('"a ""quoted"", b",2\n"two\nlines",3\n', [['a "quoted", b', "2"], ["two\nlines", "3"]]),
        ("a;b\n1,5;2\n", [["a", "b"], ["1,5", "2"]]),
        ("a\tb\n1, 2 and 3\t2\n", [["a", "b"], ["1, 2 and 3", "2"]]),
        ("\ufeffx|y\n1|2\n", [["x", "y"], ["1", "2"]]),
        ("one text\nwith, a comma, or two\nand none\n", [["one text"], ["with, a comma, or two"], ["and none"]]),
        ("a,b\n\n\n1,2\n", [["a", "b"], ["1", "2"]]),
        ("a,b\r1,2\r", [["a", "b"], ["1", "2"]]),
        ("sep=;\r\na;b\r\n;\r\n1;2\r\n", [["a", "b"], ["1", "2"]]),
        ("", []),
    ],
)
def test_csv_is_parsed(module, source, rows):
    assert in_csv(module, "csv.parse(given).rows", source) == rows


def test_formatted_csv_is_parsed_to_the_same_rows(module):
    rows = [["a", 'b "q"', "c,d"], ["", " padded ", "two\nlines"], ["=1+1", "\r", "é漢"], ["x", "", ""]]
    for separator in (",", ";", "\t", "|"):
        style = {"separator": separator, "newline": "\r\n", "bom": True}
        text = in_csv(module, "csv.format(given.rows, given)", {"rows": rows, **style})
        assert text.startswith("\ufeff")
        assert list(csv.reader(io.StringIO(text[1:], newline=""), delimiter=separator)) == rows
        assert in_csv(module, "csv.parse(given[0], given[1]).rows", [text, separator]) == rows


@pytest.mark.parametrize(
    ("source", "header", "column"),
    [
        ("id,text\n1,hello\n", True, 1),
        ("1,hello there\n2,how are you\n", False, 1),
        ("sentence,label\nyes,x\n", True, 0),
        ("code,words\n17,a rather long sentence stands here\n18,and here is another of them\n", True, 1),
        ("just one line", False, 0),
        ("Preis;Ware\n1,5;Schal\n2,25;Hut\n;\n", True, 1),
        ("1,5;Ein roter Schal\n2,25;Zwei blaue Hüte\n", False, 1),
        ("shop;red scarf\nshop;blue hat\ngarden;a spade of steel\n", False, 1),
    ],
)
def test_the_header_and_the_column_of_texts_are_found(module, source, header, column):
    rows = in_csv(module, "csv.parse(given).rows", source)
    assert in_csv(module, "csv.hasHeader(given)", rows) == header
    assert in_csv(module, "csv.textColumn(given[0], given[1])", [rows, header]) == column


@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-8", b""), ("utf-16-le", b"\xff\xfe"), ("utf-16-le", b""), ("cp1252", b"")]
)
def test_files_in_other_encodings_are_read(module, encoding, mark):
    given = list(mark + "text\nnaïve café\n".encode(encoding))
    assert "naïve café" in in_csv(module, "csv.decodeText(new Uint8Array(given).buffer)", given)


def test_a_dropped_file_keeps_its_format_and_gets_predictions(visit):
    page = visit.page
    drag = "text => { const drag = new DataTransfer(); drag.items.add(new File([text], 'my table.csv')); return drag; }"
    transfer = page.evaluate_handle(drag, SEMICOLONS)
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
    page.wait_for_selector("#table-settings:visible")
    assert page.input_value("#separator") == ";"
    assert page.is_checked("#header")
    text, name = classify(page)
    assert name == "my table-classified.csv"
    assert text.startswith("\ufeff")
    assert "\r\n" in text
    rows = list(csv.reader(io.StringIO(text[1:], newline=""), delimiter=";"))
    assert rows[0] == ["id", "text", "note", "label", "path", "probability"]
    assert rows[1][:5] == ["1", 'the old city; "big"', "=SUM(A1)", "city", "place/built/city"]
    assert 0.5 < float(rows[1][5]) <= 1
    assert rows[2][1] == "a river\r\nflows"
    assert rows[2][3] == "river"
    assert rows[3] == ["3", "", "none", "", "", ""]
    assert "1 empty row without a prediction" in page.inner_text("#predict-status")


def test_a_label_that_looks_like_a_formula_is_escaped(visit):
    page = visit.page
    page.fill("#paste", "text,label\nsum plus formula,x\n")
    text, _ = classify(page)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["text", "label", "predicted_label", "path", "probability"]
    assert rows[1][1:3] == ["x", "'=1+1"]


def test_many_rows_are_sent_in_requests_within_the_limits(visit):
    page = visit.page
    sizes = []
    page.on("request", lambda request: "predict" in request.url and sizes.append(len(request.post_data_json["texts"])))
    page.fill("#paste", "text\n" + "".join(f"the river {n}\n" for n in range(9)) + "city " * 30 + "\n")
    text, _ = classify(page)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert sizes == [4, 4, 2]
    assert [row[1] for row in rows[1:]] == ["river"] * 9 + ["city"]
    assert rows[-1][0] == ("city " * 30)
    assert "1 text truncated to 60 characters" in page.inner_text("#predict-status")


def test_requests_to_a_busy_service_are_repeated(visit):
    page = visit.page
    responses = []

    def refuse_once(route):
        if responses:
            route.continue_()
        else:
            responses.append(route.request.url)
            route.fulfill(status=503, headers={"Retry-After": "1"}, content_type="application/problem+json", body="{}")

    page.route("**/v1/predict", refuse_once)
    page.fill("#paste", "text\nthe old city\n")
    page.click("#predict-start")
    page.wait_for_function("() => document.querySelector('#predict-status').textContent.includes('busy')")
    page.wait_for_selector("#save:visible")
    assert page.inner_text("#predict-status") == "Done: 1 row classified."
    visit.errors.clear()  # the console reports the status 503


def test_a_run_can_be_stopped_and_continued(visit):
    page = visit.page
    held = []

    def hold(route):
        if "8" in json.loads(route.request.post_data)["texts"][0] and not held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/predict", hold)
    page.fill("#paste", "text\n" + "".join(f"the river {n}\n" for n in range(4, 12)))
    page.click("#predict-start")
    page.wait_for_function("() => document.querySelector('#predict-progress').value === 4")
    page.click("#predict-cancel")
    page.wait_for_selector("#save:visible")
    assert page.inner_text("#predict-status") == "Stopped after 4 rows."
    assert page.inner_text("#predict-start") == "Continue from row 5"
    text, _ = classify(page)
    assert text.count("river,place/wild/river") == 8


def test_decoders_and_their_options_come_from_the_service(visit, address):
    page = visit.page
    decoders = httpx.get(f"{address}v1/model").json()["decoders"]
    values = page.eval_on_selector_all("#decoder option", "all => all.map(option => option.value)")
    assert values == [decoder["name"] for decoder in decoders]
    page.fill("#paste", "text\nking of the river\n")
    page.select_option("#decoder", "threshold")
    assert page.input_value("#decoder-options input[name=tau]") == "0.5"
    steps = httpx.post(f"{address}v1/explain", json={"text": "king of the river", "words": False}).json()["steps"]
    *_, wild, river = (step["probability"] for step in steps)
    page.fill("#decoder-options input[name=tau]", f"{(wild + river) / 2:.3f}")
    page.press("#decoder-options input[name=tau]", "Tab")
    text, _ = classify(page)
    assert "wild,place/wild," in text
    page.fill("#decoder-options input[name=tau]", "0.4")
    page.press("#decoder-options input[name=tau]", "Tab")
    text, _ = classify(page)
    assert "river,place/wild/river," in text


def test_an_unclosed_quotation_mark_is_reported(visit):
    page = visit.page
    page.fill("#paste", 'a,b\n1,"two\n3,four\n')
    assert "in line 2 is never closed" in page.inner_text("#unclosed-quote")
