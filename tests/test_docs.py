"""Every code block of the README and the docs runs; the pages in ELSEWHERE have their own tests."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ELSEWHERE = {"own-data.md": "tests/data/test_labels.py", "taxonomy-files.md": "tests/taxonomy/test_docs_files.py"}
ALL = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PAGES = [page for page in ALL if "```python\n" in page.read_text("utf-8") and page.name not in ELSEWHERE]
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in a language, except files with a title."""
    return [code for said, title, code in FENCE.findall(page.read_text("utf-8")) if said == language and not title]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, and a function that writes the files of a page there."""
    monkeypatch.chdir(tmp_path)

    def write_files(page: Path) -> None:
        for _, title, content in FENCE.findall(page.read_text("utf-8")):
            if re.fullmatch(r"[\w-]+\.\w+", title):
                (tmp_path / title).write_text(content, "utf-8")

    return write_files


@pytest.mark.filterwarnings("ignore:.*does not have many workers")  # Lightning warns about small data
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning calls torch this way
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run(page, capsys, folder):
    folder(page)
    exec(compile("\n".join(blocks(page, "python")), page.name, "exec"), {"__name__": "page"})


def test_the_new_lines_of_from_flat_are_run():
    page = ROOT / "docs" / "from-flat.md"
    code = "\n".join(blocks(page, "python"))
    added = re.findall(r"^\+ +(.*)$", "".join(blocks(page, "diff")), re.MULTILINE)
    assert len(added) == 7
    assert not [line for line in added if line not in code]


def test_every_python_block_is_tested():
    for page in ALL:
        fences = re.findall(r"^\s*```+ *(\w.*)$", page.read_text("utf-8"), re.MULTILINE)
        odd = [f for f in fences if re.match(r"(py\b|python|pycon|Python)", f) and f != "python"]
        assert not odd, f"{page.name}: {odd}"
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / test).read_text("utf-8")


def run_commands(page: Path, monkeypatch) -> None:
    """Run the three commands of a page's bash blocks."""
    from typer.testing import CliRunner

    from arbormax.cli.app import app

    monkeypatch.setenv("COLUMNS", "200")
    lines = "".join(blocks(page, "bash")).splitlines()
    assert len(lines) == 3
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "arbormax"
        result = CliRunner().invoke(app, words[1:], prog_name="arbormax")
        assert result.exit_code == 0, (line, result.output)


def test_the_commands_of_the_first_five_minutes_run(folder, monkeypatch):
    page = ROOT / "docs" / "five-minutes.md"
    folder(page)
    run_commands(page, monkeypatch)
    assert "home > kitchen > pan" in Path("answers.csv").read_text("utf-8")


def test_the_commands_for_feature_matrices_run(folder, monkeypatch):
    page = ROOT / "docs" / "cli.md"
    folder(page)
    exec(compile("\n".join(blocks(page, "python")), page.name, "exec"), {"__name__": "page"})
    run_commands(page, monkeypatch)
    assert "rose" in Path("predicted.csv").read_text("utf-8")
    assert "virginica" in Path("report.html").read_text("utf-8")


def test_the_commands_for_linear_classifiers_run(folder, monkeypatch):
    page = ROOT / "docs" / "linear.md"
    folder(page)
    run_commands(page, monkeypatch)
    assert '"solver": "convex"' in Path("jobs-model/config.json").read_text("utf-8")


def test_the_commands_for_a_spreadsheet_run(folder, monkeypatch, capsys):
    import openpyxl

    page = ROOT / "docs" / "spreadsheet.md"
    exec(compile(blocks(page, "python")[0], page.name, "exec"), {"__name__": "page"})
    run_commands(page, monkeypatch)
    sheet = openpyxl.load_workbook("predicted.xlsx").active
    header, first, second = sheet.iter_rows(values_only=True)
    assert header[:5] == ("Name", "Beschreibung", "Marke", "label", "path")
    assert first[4] == "Küche/Pfannen"
    assert second[4] == "Garten/Spaten"


def commands(page: Path) -> list[list[str]]:
    """The arguments of every call of arbormax in a block of a page, fenced or indented."""
    text = page.read_text("utf-8")
    fenced = "".join(code for _, _, code in FENCE.findall(text))
    lines = re.findall(r"^(arbormax [a-z].*)$", fenced, re.MULTILINE)
    lines += re.findall(r"^    (arbormax [a-z].*)$", text, re.MULTILINE)
    return [shlex.split(line.partition("  #")[0])[1:] for line in lines]


@pytest.mark.parametrize("page", [page for page in ALL if commands(page)], ids=lambda page: page.name)
def test_the_commands_of_a_page_parse(page):
    """Commands may need hours or a file of the reader, so they are parsed and not run."""
    import typer

    from arbormax.cli.app import app

    for words in commands(page):
        command = typer.main.get_command(app)
        context = command.make_context("arbormax", list(words))
        while hasattr(command, "resolve_command"):
            name, command, left = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, list(left), parent=context)
        assert not context.args


def test_the_tables_of_names_are_those_of_the_registries():
    # in another process, because pages of the documentation register encoders
    command = [sys.executable, str(ROOT / "docs" / "tools" / "tables.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not result.stdout, f"out of date, run docs/tools/tables.py: {result.stdout}"


GOODS = {"home/kitchen/pan": "steel frying pan", "home/kitchen/knife": "bread knife", "garden/hose": "garden hose"}
RUN = (
    "train",
    "predict",
    "compare",
    "crossval",
    "search",
    "explain",
    "report",
)  # the others run on or need a network


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/experiments.md", "docs/report.md"])
def test_the_commands_of_a_page_run_one_after_another(name, folder, monkeypatch):
    from typer.testing import CliRunner

    from arbormax.cli.app import app

    page = ROOT / name
    folder(page)
    monkeypatch.setenv("COLUMNS", "200")
    rows = [f"{text} {number},{label}" for number in range(10) for label, text in GOODS.items()]
    for file, head in {
        "products.csv": "title,category",
        "products-test.csv": "title,category",
        "new.csv": "title,category",
        "reviews.csv": "text,label",
        "reviews-test.csv": "text,label",
    }.items():
        Path(file).write_text("\n".join([head, *rows]) + "\n", "utf-8")
    # files replace a dataset, which would be large or missing
    here = {"trec": ["reviews.csv", "--test", "reviews-test.csv"]}
    lines = [[one for word in words for one in here.get(word, [word])] for words in commands(page) if words[0] in RUN]
    assert lines
    for words in lines:
        result = CliRunner().invoke(app, words, prog_name="arbormax")
        assert result.exit_code == 0, (words, result.output)


def test_the_site_lists_every_page():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).as_posix() for page in docs.glob("**/*.md") if page.parent.name != "adr"]
    missing = [page for page in pages if f": {page}\n" not in nav]
    assert not missing, "add them to nav in mkdocs.yml"


def test_the_pictures_that_need_no_training_are_as_drawn():
    import runpy

    drawn = runpy.run_path(str(ROOT / "docs" / "tools" / "pictures.py"))["quick"]()
    assert drawn
    for name, text in drawn.items():
        assert (ROOT / "docs" / "figures" / f"{name}.svg").read_text("utf-8") == text, "run docs/tools/pictures.py"


def test_the_tour_runs(capsys, monkeypatch):
    import runpy

    monkeypatch.setattr("sys.argv", ["tour.py", "--items", "50", "--epochs", "1"])
    runpy.run_path(str(ROOT / "examples" / "tour.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "mammal" in printed
    assert "mistake_severity" in printed


def test_links_between_pages_have_a_target():
    for page in [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_measure_of_evaluate_is_documented():
    import torch

    import arbormax as am

    tax = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    logp = am.functional.node_log_probs(torch.zeros(1, 5), tax)
    text = (ROOT / "docs" / "measures.md").read_text("utf-8")
    for key in am.metrics.evaluate([3], [3], tax, logp):
        assert f"`{key.split('@')[0]}" in text or key in ("count", "leaf_count"), key
