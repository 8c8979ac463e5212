"""The directions of imports, and what `import arbormax` costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "arbormax"

BASE = {"errors", "taxonomy", "functional"}
MODEL = BASE | {"heads", "decode", "metrics"}
ALLOWED = {
    "errors": set(),
    "taxonomy": {"errors"},
    "kernels": {"errors"},
    "functional": {"errors", "taxonomy", "kernels"},
    "heads": BASE,
    "decode": BASE,
    "metrics": BASE,
    "encoders": BASE | {"data"},
    "data": MODEL,
    "uncertainty": MODEL,
    "induce": MODEL | {"data"},
    "training": MODEL | {"encoders", "data", "uncertainty", "induce"},
    "report": {"errors", "taxonomy"},
    "integrations": MODEL | {"encoders", "data", "uncertainty", "induce", "training"},
    "serve": MODEL | {"encoders", "data", "uncertainty", "induce", "training", "integrations", "report"},
    "__main__": {"cli"},
    "cli": MODEL | {"encoders", "data", "uncertainty", "induce", "training", "integrations", "report", "serve"},
}


def imported(file: Path) -> set[str]:
    """The full names of all modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if file.parent != SOURCE or file.name != "__init__.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_file_imports_only_from_the_rooms_below_it(file):
    room = room_of(file)
    assert room in ALLOWED, f"{room} has no place in DESIGN's directions"
    rooms = {name.split(".")[1] for name in imported(file) if name.startswith("arbormax.")}
    assert rooms - {room, "__version__"} <= ALLOWED[room]


def test_the_taxonomy_and_the_report_know_no_torch():
    for file in FILES:
        if room_of(file) in ("taxonomy", "report", "errors"):
            assert not [name for name in imported(file) if name.split(".")[0] == "torch"], file


def test_nothing_in_the_package_imports_what_is_outside_of_it():
    outside = {"tests", "benchmarks", "experiments", "examples", "trees", "oracles", "strategies"}
    for file in FILES:
        assert not {name.split(".")[0] for name in imported(file)} & outside, file


def test_import_loads_nothing_beyond_torch_numpy_and_the_standard_library():
    script = (
        "import sys, torch, numpy; before = set(sys.modules); import arbormax; "
        "heavy = ('HierarchicalClassifier', 'TextClassifier', 'from_pretrained', 'trainer_loss'); "
        "[getattr(arbormax, name) for name in arbormax.__all__ if name not in heavy]; "
        "print('\\n'.join(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    loaded = set(output.split())
    assert "arbormax" in loaded
    assert loaded <= {"arbormax", "torch", "numpy", *sys.stdlib_module_names}


def test_import_does_not_wake_the_compiler():
    script = "import sys, torch; had = 'torch._dynamo' in sys.modules; import arbormax; arbormax.HierarchicalSoftmax; "
    script += "print(had or 'torch._dynamo' not in sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "True"


def test_the_command_line_tells_its_help_without_torch():
    script = "import atexit, sys, arbormax.cli; atexit.register(lambda: print('torch' in sys.modules)); "
    script += "sys.argv = ['arbormax', '--help']; arbormax.cli.main()"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "taxonomy" in output
    assert output.split()[-1] == "False"


def test_every_public_name_is_there():
    import arbormax as am

    for name in am.__all__:
        assert getattr(am, name) is not None
    for module in (am.functional, am.decode, am.metrics, am.errors):
        for name in module.__all__:
            assert getattr(module, name) is not None
