"""The package: citation, version, completion, and the wheel in a fresh environment."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import arbormax as am

ROOT = Path(__file__).parent.parent

SMOKE = """
import sys
from importlib.metadata import version
from pathlib import Path

import arbormax as am

assert Path(am.__file__).is_relative_to(sys.prefix), am.__file__
assert am.__version__ == version("arbormax")
texts = ["steel frying pan", "bread knife", "garden hose", "a sharp spade"] * 10
labels = ["home/kitchen/pan", "home/kitchen/knife", "garden/hose", "garden/spade"] * 10
clf = am.TextClassifier(encoder="bag", head="hierarchical", seed=0, accelerator="cpu").fit(texts, labels)
clf.save("model")
again = am.TextClassifier.load("model")
assert list(again.predict(["a new frying pan", "hose"])) == ["pan", "hose"]
print("smoke test passed")
"""


def test_the_citation_names_the_software_and_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cited)
    assert cited["type"] == "software"
    assert str(cited["version"]) == am.__version__
    (paper,) = cited["references"]
    assert paper["title"] == "Global Hierarchical Neural Networks using Hierarchical Softmax"
    assert [author["family-names"] for author in paper["authors"]] == ["Schuurmans", "Frasincar"]
    assert paper["year"] == 2020


def test_completion_is_printed_for_the_current_shell():
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = "arbormax --show-completion; exit $?"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=environment)
    assert result.returncode == 0, result.stderr
    assert "complete -o default -F _arbormax_completion arbormax" in result.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [("arbormax ex", "export"), ("arbormax taxonomy c", "check"), ("arbormax export --for", "--force")],
)
def test_commands_and_options_are_completed(line, expected):
    asked = {"_ARBORMAX_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    script = "from arbormax.cli import main; import sys; sys.argv = ['arbormax']; main()"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env={**os.environ, **asked}
    )
    assert expected in result.stdout.split(), result


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of a wheel and an sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.mark.slow
def test_the_wheel_and_the_sdist_contain_the_right_files(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"arbormax-{am.__version__}.dist-info"
    assert {"arbormax/py.typed", "arbormax/__init__.py", f"{info}/licenses/LICENSE"} <= names
    assert {name.split("/")[0] for name in names} == {"arbormax", info}
    page = {name for name in names if name.startswith(("arbormax/serve/page/", "arbormax/report/page/"))}
    assert {"arbormax/serve/page/index.html", "arbormax/serve/page/app.js", "arbormax/report/page/draw.js"} <= page
    others = [name for name in names - page if not name.startswith(info)]
    assert not [name for name in others if not name.endswith((".py", "py.typed"))]
    about = zipfile.ZipFile(wheel).read(f"{info}/METADATA").decode()
    assert "Requires-Python: >=3.11" in about
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "tests/conftest.py"} <= files
    assert {f"src/{name}" for name in names if name.startswith("arbormax/")} <= files
    tops = {name.partition("/")[0] for name in files if "/" in name}
    assert tops == {"src", "tests", "docs", "examples", "benchmarks"}
    assert sdist.stat().st_size < 5_000_000


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_installs_in_a_fresh_environment_and_works(built, tmp_path, version):
    python = shutil.which(f"python{version}")
    asked = [python, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    if python is None or subprocess.run(asked, capture_output=True, text=True).stdout.strip() != version:
        pytest.skip(f"Python {version} is not installed")
    resolved = [
        python,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "-c",
        ROOT / "constraints.txt",
        "torch",
    ]
    if subprocess.run(resolved, capture_output=True, timeout=600).returncode:
        pytest.skip(f"the package index has no torch for Python {version}")
    (wheel,) = built.glob("*.whl")
    installs_and_works(python, wheel, tmp_path)


@pytest.mark.slow
def test_the_sdist_installs_in_a_fresh_environment_and_works(built, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    installs_and_works(sys.executable, sdist, tmp_path)


def installs_and_works(python, package, folder):
    """Install the package with its training extra and the tested versions, isolated from this environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def run(*command):
        result = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=folder, env=clean)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run(python, "-m", "venv", folder / "fresh")
    place = folder / "fresh" / ("Scripts" if os.name == "nt" else "bin")
    run(place / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{package}[train]")
    (folder / "smoke.py").write_text(SMOKE)
    assert "smoke test passed" in run(place / "python", "smoke.py")
    assert run(place / "arbormax", "--version") == f"arbormax {am.__version__}\n"
    assert "label" in run(place / "arbormax", "predict", "model", "--message", "garden hose", "--json")
