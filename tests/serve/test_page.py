"""The web page in Chromium: prediction of one text, the tree, word contributions, classes, accessibility."""

from contextlib import suppress
from urllib.parse import quote

import httpx
import pytest
from page_tools import EXAMPLES, IMAGE_MARKUP, SCRIPT_MARKUP, Visit, serving, tiny_model

from arbormax.serve.service import default_examples

RIVER = "king of the river"  # place 59%, wild 49%, river 44%; person is less probable


@pytest.fixture(scope="module")
def address(browser):
    with serving(tiny_model(), examples=EXAMPLES) as found:
        yield found


def enter_text(page, text):
    """Enter a text and wait for its prediction."""
    page.fill("#text", text)
    page.wait_for_selector("#tree [role=treeitem]")
    page.wait_for_function("() => document.querySelector('#answer').getAttribute('aria-busy') === 'false'")
    page.wait_for_function("text => document.querySelector('#words').textContent.includes(text[0])", arg=[text[:3]])


def item(name):
    return f'#tree [role=treeitem][aria-label^="{name}, "]'


def test_typing_highlights_the_path_with_a_probability_at_every_step(visit, address):
    page = visit.open()
    page.locator("#text").press_sequentially("the old city", delay=15)
    page.wait_for_selector(item("city"))
    body = {"text": "the old city", "words": False}
    explanation = httpx.post(f"{address}v1/explain", json=body).json()
    assert page.inner_text("#label") == "place › built › city"
    for step in explanation["steps"]:
        box = page.locator(item(step["name"]))
        assert "on the path" in box.get_attribute("aria-label")
        probability = step["probability"]
        shown = ">99%" if 0.995 <= probability < 1 else f"{round(100 * probability)}%"
        assert box.locator(".number").text_content() == shown
    assert page.locator("#tree .link.lit").count() == len(explanation["steps"])


def test_siblings_below_one_percent_share_one_line_that_unfolds(visit, address):
    text = "the old city town streets"
    page = visit.open(f"text={quote(text)}")
    page.wait_for_selector(item("city"))
    top = httpx.post(f"{address}v1/explain", json={"text": text}).json()["nodes"]
    assert sum(node["parent"] == 0 and node["probability"] < 0.01 for node in top) == 2
    assert page.locator(item("person")).count() == 0
    fold = page.locator("#tree .more", has_text="2 below 1%")
    assert fold.get_attribute("aria-label").startswith("2 more branches, ")
    fold.click()
    page.wait_for_selector(item("person"))
    assert "on the path" not in page.get_attribute(item("person"), "aria-label")
    assert fold.count() == 0
    page.click(item("person"))  # its children add up to less than 1 %, and are shown
    page.wait_for_selector(item("singer"))


@pytest.mark.parametrize("width", [390, 1280])
def test_word_contributions_come_before_the_tree_on_a_phone(visit, width):
    page = visit.open(f"text={quote(RIVER)}")
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_selector("#words mark")
    words, tree = (page.locator(part).bounding_box() for part in ("#words", "#tree"))
    assert (words["y"] + words["height"] < tree["y"]) == (width == 390)


def test_an_older_response_does_not_replace_a_newer_one(visit):
    page = visit.open()
    held = []
    page.route(
        "**/v1/explain", lambda route: held.append(route) if "sing" in route.request.post_data else route.continue_()
    )
    page.fill("#text", "a singer")
    page.wait_for_timeout(400)
    enter_text(page, "the old city")
    [late] = held
    with suppress(Exception):  # the page may have cancelled it already
        late.continue_()
    page.wait_for_timeout(300)
    assert page.inner_text("#label") == "place › built › city"


@pytest.mark.parametrize("text", [RIVER, "river town", "song of a mountain", "a singer on the bridge"])
def test_the_slider_agrees_with_the_threshold_decoder(visit, address, text):
    page = visit.open(f"text={quote(text)}")
    page.wait_for_selector("#tree [role=treeitem]")
    for tau in (0.05, 0.3, 0.45, 0.55, 0.65, 0.9):
        body = {"text": text, "decoder": "threshold", "tau": tau}
        [found] = httpx.post(f"{address}v1/predict", json=body).json()["predictions"]
        page.locator("#tau").fill(str(round(100 * tau)))
        expected = found["path"][-1] if found["path"] else "No prediction"
        page.wait_for_function("name => document.querySelector('#stop').textContent.includes(name)", arg=expected)
        shown = page.locator(f'#tree [data-node="{found["node"]}"]')  # the tree may not contain the node
        assert shown.count() == 0 or "stop" in shown.get_attribute("class").split()
        assert page.locator("#tree .box.stop").count() == shown.count()
        assert page.inner_text("#tau-value") == f"{round(100 * tau)}%"


def test_selecting_another_node_opens_its_branch(visit):
    page = visit.open(f"text={quote(RIVER)}")
    page.click(item("person"))
    page.wait_for_selector(item("singer"))
    assert page.inner_text("#branch-name") == "person"
    assert page.inner_text("#label") == "place › wild › river"
    assert page.get_attribute(item("person"), "aria-selected") == "true"
    assert page.locator(item("wild")).count() == 0
    page.click("#back")
    page.wait_for_selector(item("wild"))
    assert page.is_hidden("#branch")


def test_word_contributions_change_with_the_step(visit):
    page = visit.open(f"text={quote(RIVER)}&step=1")
    page.wait_for_selector("#words mark")

    def marks():
        return page.eval_on_selector_all("#words mark", "all => all.map(one => one.className + one.textContent)")

    first = marks()
    assert any(mark.startswith("against") and "king" in mark and "(opposes −" in mark for mark in first)
    assert any(mark.startswith("for") and "river" in mark and "(supports +" in mark for mark in first)
    assert page.inner_text("#words-summary") == "“river” contributed most to place; “king” spoke most against it."
    page.focus("#steps input:checked")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert marks() != first
    assert "“river” contributed most to river" in page.inner_text("#words-summary")
    assert page.get_attribute(item("river"), "aria-selected") == "true"
    styles = [
        page.eval_on_selector(f".key.{kind}", "e => getComputedStyle(e).borderBottomStyle")
        for kind in ("for", "against")
    ]
    assert styles == ["solid", "dashed"]


def test_highlights_have_the_right_position_after_emoji(visit):
    page = visit.open(f"text={quote('🏞🏞 king 👑 river')}&step=1")
    page.wait_for_selector("#words mark")
    assert "river" in page.locator("#words mark").last.inner_text()


def test_a_link_restores_the_text_the_minimum_probability_and_the_step(visit, browser, address):
    page = visit.open()
    enter_text(page, RIVER)
    page.locator("#tau").fill("55")
    page.click(item("wild"))
    page.wait_for_function("() => location.hash.includes('step=2')")
    link = page.url
    urls = []
    other = Visit(browser, address)
    other.page.on("request", lambda request: urls.append(request.url))
    other.page.goto(link)
    other.page.wait_for_selector("#words mark")
    assert other.page.input_value("#text") == RIVER
    assert other.page.input_value("#tau") == "55"
    assert other.page.locator("#steps input").nth(1).is_checked()
    assert other.page.locator("#tree .box.stop").get_attribute("data-node") == page.locator(
        "#tree .box.stop"
    ).get_attribute("data-node")
    assert not any("river" in url for url in urls if "#" not in url)
    other.close()


def test_a_link_to_an_unknown_node_shows_the_prediction(visit):
    page = visit.open(f"text={quote(RIVER)}&node=12345")
    page.wait_for_selector(item("river"))
    assert "node" not in page.evaluate("location.hash")
    visit.errors.clear()  # the console reports the status 404


def test_a_link_to_a_node_of_the_path_does_not_open_a_branch(visit):
    for node in (0, 1):  # the root and place
        page = visit.open(f"text={quote(RIVER)}&node={node}&tau=0.999")
        page.wait_for_selector(item("river"))
        assert page.is_hidden("#branch")
        assert page.inner_text("#tau-value") == "50%"  # beyond the range of the slider
        page.goto("about:blank")


def test_a_text_that_is_too_long_is_reported(visit):
    page = visit.open(f"text={'a' * 20_001}")
    page.wait_for_selector("#problem:visible")
    assert "at most 20000 characters" in page.inner_text("#problem-message")
    visit.errors.clear()  # the console reports the status 422


def test_a_prediction_stays_with_its_text_until_the_next_one(visit):
    page = visit.open(f"text={quote(RIVER)}")
    page.wait_for_selector("#words mark")
    typed = "text => { const area = document.querySelector('#text'); area.value = text;"
    typed += " area.dispatchEvent(new Event('input')); document.querySelector('#steps input').click();"
    typed += " const words = document.querySelector('#words').textContent; location.hash = `#text=${text}`;"
    assert "river" in page.evaluate(f"{typed} return words; }}", "song")
    page.wait_for_selector(item("singer"))
    assert page.inner_text("#words").startswith("song")


def test_names_with_directional_characters_are_isolated(visit):
    isolate = "async name => (await import('/static/dom.js')).isolate(name)"
    page = visit.open("view=help")
    assert page.evaluate(isolate, "\u202eevil") == "\u2068\u202eevil\u2069"
    assert page.evaluate(isolate, "good") == "good"


def test_markup_in_texts_and_names_is_shown_and_not_executed(visit):
    page = visit.open("view=classes")
    page.wait_for_selector(".entry")
    assert SCRIPT_MARKUP in page.inner_text(".rows")
    page.goto(f"{visit.address}#text={quote(SCRIPT_MARKUP + ' script tag ' + IMAGE_MARKUP)}")
    page.wait_for_selector("#tree [role=treeitem][aria-label*='onerror']")
    page.wait_for_timeout(200)
    assert page.title() == "tiny · arbormax"
    assert page.input_value("#text") == SCRIPT_MARKUP + " script tag " + IMAGE_MARKUP
    visible = "e => { for (const part of e.querySelectorAll('.hidden')) part.remove(); return e.textContent; }"
    shown = page.eval_on_selector("#words", visible)
    assert shown == SCRIPT_MARKUP + " script tag " + IMAGE_MARKUP
    assert page.inner_text("#label") == f"{SCRIPT_MARKUP} › {IMAGE_MARKUP}"
    assert page.locator("main img, main script").count() == 0


def test_an_empty_page_offers_three_names_or_texts_of_classes(browser):
    model = tiny_model()
    described = model.taxonomy.with_texts({"river": "water that flows", "king": "wears a crown"})
    for tree, expected in ((model.taxonomy, None), (described, {"water that flows", "wears a crown"})):
        found = default_examples(tree)
        assert set(found) == expected if expected else set(found) < set(model.taxonomy.names)
        assert len(found) == len(expected or "abc")
    with serving(model) as address:
        visit = Visit(browser, address)
        page = visit.open()
        page.wait_for_selector("#example-list button")
        assert page.locator("#example-list button").count() == 3
        page.locator("#example-list button").first.click()
        page.wait_for_selector("#tree [role=treeitem]")
        assert page.input_value("#text") == default_examples(model.taxonomy)[0]
        visit.close()


def test_a_click_on_an_example_predicts_it(visit):
    page = visit.open()
    page.click(f"#example-list button:has-text('{EXAMPLES[1]}')")
    page.wait_for_selector(item("river"))
    assert page.input_value("#text") == EXAMPLES[1]
    assert page.is_hidden("#examples")
    page.click("#clear")
    page.wait_for_selector("#examples:visible")


def test_the_page_works_with_the_keyboard_only(visit):
    page = visit.open()
    page.wait_for_selector("#example-list button")

    def tab_to(selector):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"{selector} cannot be reached")

    tab_to("#skip")
    page.keyboard.press("Enter")
    tab_to("#text")
    page.keyboard.type(RIVER)
    page.wait_for_selector(item("river"))
    tab_to("#tau")
    page.keyboard.press("End")
    assert "No prediction" in page.inner_text("#stop")
    tab_to("#tree [role=treeitem]")
    for key in ("Home", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    while not page.evaluate("document.activeElement.getAttribute('aria-label').startsWith('person')"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(item("king"))
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("person")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("person")
    outlined = "getComputedStyle(document.activeElement.querySelector('.back')).strokeWidth"
    assert page.evaluate(outlined) == "3px"


def test_an_error_of_the_service_is_shown_and_can_be_retried(visit):
    page = visit.open()
    problem = '{"title": "Unavailable", "detail": "the queue is full"}'
    page.route(
        "**/v1/explain", lambda route: route.fulfill(status=503, body=problem, content_type="application/problem+json")
    )
    page.fill("#text", "the old city")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem-message") == "the queue is full"
    page.unroute("**/v1/explain")
    page.click("#retry")
    page.wait_for_selector(item("city"))
    assert page.is_hidden("#problem")
    visit.errors.clear()  # the console reports the status 503


def test_the_api_key_is_requested_and_kept_for_the_session(browser):
    with serving(tiny_model(), api_key="correct horse") as address:
        visit = Visit(browser, address)
        page = visit.open("text=city")
        page.fill("#key", "a key that a header cannot contain: ☃")
        page.keyboard.press("Enter")
        assert page.is_visible("#key-dialog")
        page.fill("#key", "wrong horse")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-rejected:visible")
        page.fill("#key", "correct horse")
        page.keyboard.press("Enter")
        page.wait_for_selector(item("city"))
        page.reload()
        page.wait_for_selector(item("city"))
        assert page.is_hidden("#key-dialog")
        assert "horse" not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        visit.errors.clear()  # the console reports the status 401
        visit.close()


def test_classes_can_be_browsed_and_searched(visit):
    page = visit.open("view=classes")
    page.click(".entry:has-text('place')")
    page.click(".entry:has-text('wild')")
    page.wait_for_selector(".entry:has-text('peak')")
    assert page.inner_text("#crumbs").split("\n") == ["All classes", "place", "wild"]
    page.fill("#search", "brid")
    page.wait_for_selector(".entry:has-text('bridge')")
    assert page.locator(".entry").count() == 1
    assert page.inner_text(".entry small") == "place › built"
    page.fill("#search", "wild")  # the node that is open
    page.click(".entry:has-text('wild')")
    page.wait_for_selector(".entry:has-text('peak')")
    assert page.input_value("#search") == ""
    page.fill("#search", "no such name")
    page.wait_for_function("() => document.querySelector('#classes-status').textContent.startsWith('No name contains')")
    page.fill("#search", "")
    page.wait_for_selector(".entry:has-text('peak')")
    page.go_back()
    page.wait_for_selector(".entry:has-text('built')")


def test_a_list_of_75000_classes_draws_only_visible_rows(visit):
    page = visit.open("view=help")

    def respond(route):
        parameters = httpx.URL(route.request.url).params
        offset, limit = int(parameters.get("offset", 0)), int(parameters.get("limit", 100))
        assert limit <= 500
        rows = [
            {"node": n + 1, "name": f"class {n}", "label": f"class {n}", "classes": 1, "children": 0}
            for n in range(offset, min(75_000, offset + limit))
        ]
        node = {"node": 0, "name": "root", "label": "", "classes": 75_000, "children": 75_000}
        summary = {"classes": 75_000, "depth": 1, "ancestors": []}
        route.fulfill(json={**summary, "node": node, "children": rows, "total": 75_000, "offset": offset})

    page.route("**/v1/taxonomy?*", respond)
    page.click("nav.views a[data-view=classes]")
    page.wait_for_selector(".entry")
    page.focus(".entry")
    page.keyboard.press("End")
    page.wait_for_selector(".entry:has-text('class 74999')")
    for place in range(70_000, 0, -10_000):
        page.evaluate("place => { document.querySelector('#classes-list').scrollTop = place * 44; }", place)
        page.wait_for_selector(f".entry:has-text('class {place}')")
    assert page.locator(".rows li").count() < 60


@pytest.mark.parametrize("width", [320, 390])
def test_the_page_fits_a_phone(browser, address, width):
    visit = Visit(browser, address, viewport={"width": width, "height": 700}, has_touch=True, is_mobile=True)
    page = visit.open(f"text={quote(RIVER + ' ' + 'a' * 300)}")
    page.wait_for_selector(item("river"))
    assert page.get_attribute("#tree", "class").startswith("tree outline")
    for view in ("text", "table", "classes", "help"):
        page.evaluate("view => document.querySelector(`nav.views a[data-view=${view}]`).click()", view)
        page.wait_for_selector(f"#view-{view}:visible")
        if view == "table":
            page.fill("#paste", "text;n\nthe old city;1\na king of the river;2\n")
            page.wait_for_selector("#predict-start")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    page.evaluate("document.querySelector('#text-link').click()")
    page.tap(item("person"))
    page.wait_for_selector(item("king"))
    visit.close()


def test_axe_finds_no_serious_violation_in_any_view(browser, address):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    visit = Visit(browser, address, color_scheme="light", reduced_motion="reduce")
    page = visit.open(f"text={quote(' '.join([RIVER] * 60))}&tau=0.55")
    page.wait_for_selector("#words mark")

    def check(view):
        found = axe.run(page).response["violations"]
        page.emulate_media(color_scheme="dark")
        found += axe.run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
        page.emulate_media(color_scheme="light")
        bad = [
            f"{violation['id']}: {[node['html'] for node in violation['nodes']]}"
            for violation in found
            if violation["impact"] in ("serious", "critical")
        ]
        assert not bad, (view, bad)

    check("text")
    page.click(item("person"))
    page.wait_for_selector("#branch:visible")
    check("another branch")
    page.click("#back")
    page.click("#decoding summary")
    page.select_option("#text-decoder", "optimal")
    page.select_option("#text-decoder-options [name=metric]", "risk")
    page.wait_for_selector("#slider", state="hidden")
    check("decoder")
    page.click("#clear")
    page.wait_for_selector("#placeholder:visible")
    check("empty")
    page.click("nav.views a[data-view=table]")
    page.fill("#paste", "id,text\n1,the old city\n2,a river\n")
    page.click("#predict-start")
    page.wait_for_selector("#save:visible")
    check("table")
    page.click("nav.views a[data-view=classes]")
    page.wait_for_selector(".entry")
    check("classes")
    page.click("nav.views a[data-view=help]")
    check("help")
    visit.close()


def test_the_theme_follows_the_system_and_the_switch(browser, address):
    visit = Visit(browser, address, color_scheme="dark")
    page = visit.open()
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    light = page.evaluate(background)
    assert light != dark
    page.reload()
    assert page.evaluate(background) == light
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    assert page.evaluate(background) == dark
    visit.close()


def test_the_first_paint_takes_less_than_a_second(visit):
    page = visit.open()
    painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? Infinity"
    times = []
    while not times or (times[-1] >= 1000 and len(times) < 4):  # other processes may slow down the machine
        page.reload()
        page.wait_for_timeout(150)
        times.append(page.evaluate(painted))
    assert times[-1] < 1000, times


def test_the_content_security_policy_is_strict(visit, address):
    policy = httpx.get(address).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
