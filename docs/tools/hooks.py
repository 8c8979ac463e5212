"""Hooks of `mkdocs build`: formulas as MathML, generated pages, and no outside addresses."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_OUTWARD = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+([^)]+)\)")
# the script of the theme can load a drawing library, a polyfill and repository statistics; this site needs none
_FETCHED = re.compile(r"https://(?:unpkg\.com|api\.github\.com|\$\{\w+\}/api)[^\"'`$]*")


def on_files(files: Files, config: Any) -> Files:
    """Add the changelog and the list of decisions."""
    titles = {path.name: path.read_text("utf-8").partition("\n")[0].lstrip("# ") for path in _decisions()}
    listed = "\n".join(f"- [{title}]({name})" for name, title in titles.items())
    pages = {
        "changelog.md": (ROOT / "CHANGELOG.md").read_text("utf-8"),
        "adr/index.md": f"# Decisions\n\nThe decision records of the project.\n\n{listed}\n",
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files outside docs/, which are not part of the site, by the names of the files."""

    def replace(link: re.Match[str]) -> str:
        text, target = link.groups()
        depth = link[0].count("../")
        if depth <= page.file.src_uri.count("/"):
            return link[0]
        return f"`{target}`" if target.endswith(text.strip("`")) else f"{text} (`{target}`)"

    return _OUTWARD.sub(replace, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Convert formulas to MathML, which browsers render without a script."""
    return _FORMULA.sub(lambda found: _mathml(found[2], page.file.src_uri), html)


def on_post_build(config: Any, **_: Any) -> None:
    """Remove outside addresses and the stemmers of other languages from the scripts."""
    shutil.rmtree(Path(config.site_dir, "assets", "javascripts", "lunr"), ignore_errors=True)
    for script in Path(config.site_dir).rglob("*.js"):
        text = script.read_text("utf-8")
        if _FETCHED.search(text):
            script.write_text(_FETCHED.sub("", text), "utf-8")


def _mathml(marked: str, where: str) -> str:
    block = marked.strip().startswith(r"\[")
    formula = html.unescape(marked.strip()[2:-2]).strip()
    mathml = convert(formula, display="block" if block else "inline")
    if "\\" in mathml or "<mi>&</mi>" in mathml:
        raise PluginError(f"{where}: latex2mathml cannot convert all of {formula!r}")
    return mathml


def _decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
