"""The import rules of the package, and the modules that `import arbormax` loads."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "arbormax"

READERS = {"_archives", "_dialect", "_excel"}
BASE = {"errors", "_files", "_locks", "_lazy", "_registry", "_version", "taxonomy", "functional", *READERS}
CORE = BASE | {"heads", "decode", "metrics"}
MODEL = CORE | {"data", "encoders", "model"}
STUDIES = MODEL | {"uncertainty", "induce", "training", "studies"}
ALLOWED = {
    "errors": set(),
    "_version": set(),
    "_files": {"errors", "_locks"},
    "_locks": {"errors"},
    "_lazy": set(),
    "_archives": {"errors"},
    "_dialect": set(),
    "_excel": {"errors", "_archives"},
    "_registry": {"errors"},
    "taxonomy": {"errors", "_files", "_registry", *READERS},
    "kernels": {"errors"},
    "functional": {"errors", "taxonomy", "kernels"},
    "heads": BASE,
    "decode": BASE,
    "metrics": BASE,
    "data": CORE,
    "encoders": BASE | {"data"},
    "model": MODEL,
    "uncertainty": MODEL,
    "induce": MODEL,
    "training": MODEL | {"uncertainty", "induce"},
    "studies": STUDIES,
    "sklearn": STUDIES,
    "integrations": STUDIES,
    "report": {"errors", "_files", "_registry", "_version", "taxonomy", "metrics"},
    "serve": STUDIES | {"sklearn", "integrations", "report"},
    "cli": STUDIES | {"sklearn", "integrations", "report", "serve"},
    "__main__": {"cli"},
}
FILES = [file for file in sorted(SOURCE.rglob("*.py")) if file != SOURCE / "__init__.py"]


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in FILES}


@cache
def imports(file: Path) -> tuple[tuple[str, str | None], ...]:
    """Every (module, name) that a file imports, also inside functions, except for type checking."""
    found: list[tuple[str, str | None]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            found.extend((node.module or "", alias.name) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(file.read_text("utf-8")))
    return tuple(found)


def package_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def own_imports(file: Path) -> list[str]:
    """The modules of arbormax that a file imports."""
    names = []
    for module, name in imports(file):
        if module == "arbormax" or module.startswith("arbormax."):
            whole = f"{module}.{name}"
            names.append(whole if whole in MODULES or module == "arbormax" else module)
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_file_imports_only_from_the_packages_below_it(file):
    package = package_of(file)
    assert package in ALLOWED, f"{package} is not in the import rules"
    packages = {name.split(".")[1] for name in own_imports(file) if "." in name}
    assert packages - {package, "__version__"} <= ALLOWED[package]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_private_name_of_another_package_is_imported(file):
    for module, name in imports(file):
        parts = module.split(".")
        if parts[0] == "arbormax" and len(parts) > 1 and parts[1] != package_of(file):
            private = [part for part in (*parts[2:], name or "") if part.startswith("_") and part != "__version__"]
            assert not private, f"{module} import {name}"


def test_no_module_imports_itself_through_others():
    """Imports inside functions count, too."""
    graph = {
        name: {found for found in own_imports(file) if found in MODULES and found != name}
        for name, file in MODULES.items()
    }
    done: set[str] = set()
    for start in graph:
        path: list[str] = []
        stack = [(start, iter(graph[start]))] if start not in done else []
        path += [start] if stack else []
        while stack:
            for following in stack[-1][1]:
                assert following not in path, " -> ".join([*path[path.index(following) :], following])
                if following not in done:
                    path.append(following)
                    stack.append((following, iter(graph[following])))
                    break
            else:
                done.add(stack.pop()[0])
                path.pop()


def test_the_package_imports_nothing_of_tests_or_experiments():
    outside = {"tests", "benchmarks", "experiments", "examples", "trees", "oracles", "strategies"}
    for file in FILES:
        assert not {module.split(".")[0] for module, _ in imports(file)} & outside, file


def loaded_by(script: str) -> set[str]:
    script = f"import sys; before = set(sys.modules); {script}; "
    script += "print('\\n'.join(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_import_loads_nothing_beyond_torch_numpy_and_the_standard_library():
    loaded = loaded_by(
        "import torch, numpy; before |= set(sys.modules); import arbormax; "
        "heavy = ('HierarchicalClassifier', 'TextClassifier', 'from_pretrained', 'trainer_loss'); "
        "[getattr(arbormax, name) for name in arbormax.__all__ if name not in heavy]"
    )
    assert "arbormax" in loaded
    assert loaded <= {"arbormax", "torch", "numpy", *sys.stdlib_module_names}


@pytest.mark.parametrize(
    "module", ["taxonomy", "report", "errors", "heads", "decode", "metrics", "encoders", "data.datasets"]
)
def test_taxonomies_reports_and_registries_need_no_torch(module):
    assert "torch" not in loaded_by(f"import arbormax.{module}")


def test_import_does_not_load_the_compiler():
    script = "import sys, torch; had = 'torch._dynamo' in sys.modules; import arbormax; arbormax.HierarchicalSoftmax; "
    script += "print(had or 'torch._dynamo' not in sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "True"


def test_the_command_line_prints_its_help_without_torch():
    script = "import atexit, sys, arbormax.cli; atexit.register(lambda: print('torch' in sys.modules)); "
    script += "sys.argv = ['arbormax', '--help']; arbormax.cli.main()"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "taxonomy" in output
    assert output.split()[-1] == "False"


def test_every_public_name_exists():
    import arbormax as am

    for name in am.__all__:
        assert getattr(am, name) is not None
    for module in (am.functional, am.decode, am.metrics, am.errors):
        for name in module.__all__:
            assert getattr(module, name) is not None


def test_the_folders_of_the_tests_are_those_of_the_package():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
    assert folders - {"benchmarks", "docs", "experiments"} == packages
