"""`make docs` builds the site without warnings, and its pages load nothing from other addresses."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOADING = {"src", "srcset", "poster", "data", "action", "background"}
NAMESPACES = "http://www.w3.org/"  # XML namespaces, which are not loaded
ADDRESS = re.compile(r"(?:https?:)?//[\w$\[]")


class Loads(HTMLParser):
    """The addresses that a browser loads for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.script = False

    def handle_starttag(self, tag, attrs):
        self.script = tag == "script"
        for name, value in attrs:
            if name in LOADING or (tag in ("link", "use", "image") and name in ("href", "xlink:href")):
                self.found += [value] if ADDRESS.match(value or "") else []
            elif name == "style":
                self.found += addresses_in_styles(value or "")

    def handle_data(self, data):
        if self.script:
            self.found += addresses_in_scripts(data)
        self.script = False


def addresses_in_styles(text: str) -> list[str]:
    found = re.findall(r"(?:url\(\s*|@import\s+)[\"']?([^\"')\s;]+)", text)
    return [url for url in found if ADDRESS.match(url)]


def addresses_in_scripts(text: str) -> list[str]:
    """Addresses at the beginning of a string; those in comments and messages are not loaded."""
    return [url for url in re.findall(r"[\"'`](https?://[^\"'`\s]*)", text) if not url.startswith(NAMESPACES)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="needs mkdocs, which make docs installs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr[-3000:]
    assert "WARNING" not in built.stderr
    return folder


@pytest.mark.slow
def test_no_page_style_or_script_loads_from_another_address(site):
    outside = {}
    for file in site.rglob("*"):
        if file.suffix == ".html":
            page = Loads()
            page.feed(file.read_text("utf-8"))
            outside[file.name] = page.found
        elif file.suffix in (".css", ".svg"):
            outside[file.name] = addresses_in_styles(file.read_text("utf-8"))
        elif file.suffix == ".js":
            outside[file.name] = addresses_in_scripts(file.read_text("utf-8"))
    assert len(outside) > 40
    assert not {name: found for name, found in outside.items() if found}


@pytest.mark.slow
def test_formulas_are_mathml_and_public_names_are_documented(site):
    formulas = (site / "mathematics.html").read_text("utf-8")
    assert formulas.count("<math") > 50
    assert "arithmatex" not in formulas
    import arbormax as am

    api = "".join(file.read_text("utf-8") for file in (site / "api").glob("*.html"))
    modules = {"decode", "errors", "functional", "metrics"}
    missing = [name for name in am.__all__ if name not in modules and f'id="arbormax.{name}"' not in api]
    for module in (*modules, "data", "encoders"):
        names = getattr(am, module).__all__
        missing += [f"{module}.{name}" for name in names if f'id="arbormax.{module}.{name}"' not in api]
    assert not missing


def test_the_helpers_find_outside_addresses():
    page = Loads()
    page.feed(
        '<link href="//a.org/x.css"><script src="https://b.org/x.js"></script><script>load("https://c.org")</script>'
        '<p style="background: url(http://d.org/x.png)"><a href="https://fine.org">fine</a><svg xmlns="http://www.w3.org/2000/svg">'
    )
    assert page.found == ["//a.org/x.css", "https://b.org/x.js", "https://c.org", "http://d.org/x.png"]
    assert addresses_in_styles('@import "https://e.org/x.css";') == ["https://e.org/x.css"]
