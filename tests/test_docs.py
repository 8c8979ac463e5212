"""Every Python block of the README and the docs runs, in the order of its page; own-data: tests/data/test_labels.py."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = ("start", "heads", "measures", "data", "training", "classifier", "experiments", "transformers", "images")
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in NAMES)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), page.name, "exec"), {"__name__": "page"})


def test_the_tour_runs(capsys, monkeypatch):
    import runpy

    monkeypatch.setattr("sys.argv", ["tour.py", "--items", "50", "--epochs", "1"])
    runpy.run_path(str(ROOT / "examples" / "tour.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "mammal" in printed
    assert "mistake_severity" in printed


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_measure_that_evaluate_gives_is_documented():
    import torch

    import arbormax as am

    tax = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    logp = am.functional.node_log_probs(torch.zeros(1, 5), tax)
    text = (ROOT / "docs" / "measures.md").read_text("utf-8")
    for key in am.metrics.evaluate([3], [3], tax, logp):
        assert f"`{key.split('@')[0]}" in text or key in ("count", "leaf_count"), key
