"""Declared dependencies are used, used packages are declared, and constraints-lowest.txt has the lower bounds."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TOOLS = {"dev", "docs", "notebooks", "bench", "audit", "all"}
MODULES = {"pyyaml": "yaml", "scikit-learn": "sklearn"}  # where the name of the module is another one
# not imported by arbormax itself
REASONS = {
    "accelerate": "the Trainer of transformers needs it",
    "httptools": "parser of Uvicorn's protocol, a base class of ours",
    "onnxscript": "torch.onnx needs it",
    "tensorboard": "Lightning's TensorBoardLogger writes with it",
    "uvloop": "Uvicorn uses it if it is installed",
}
PARTS = {  # modules of packages that a declared one requires
    "joblib": "scikit-learn",
    "lightning-fabric": "pytorch-lightning",
    "pydantic-core": "pydantic",
    "scipy": "scikit-learn",
    "starlette": "fastapi",
}
OPTIONAL = {"anytree", "networkx", "triton"}  # interoperability, and a part of torch's wheels for Linux


def parse(requirement: str) -> tuple[str, str]:
    """The name and the lower bound of a requirement."""
    name, bound = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?(?:>=([0-9.]+))?", requirement).groups()
    return name.lower().replace("_", "-"), bound or ""


def declared() -> dict[str, str]:
    """The dependencies of users, with their lower bounds."""
    extras = PROJECT["optional-dependencies"]
    listed = PROJECT["dependencies"] + [line for name in extras if name not in TOOLS for line in extras[name]]
    return {name: bound for name, bound in map(parse, listed) if name != "arbormax"}


def imported() -> set[str]:
    """The packages that the source imports, also lazily, with '-' for '_'."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # import_extra("pyarrow.parquet", …)
                found.add(node.value)
    return {name.split(".")[0].replace("_", "-") for name in found if re.fullmatch(r"[A-Za-z0-9_.]+", name)}


def test_every_dependency_is_used():
    used = imported()
    unused = {name for name in declared() if MODULES.get(name, name) not in used and name not in REASONS}
    assert unused == set()


def test_every_imported_package_is_declared():
    known = {MODULES.get(name, name) for name in declared()} | set(PARTS) | OPTIONAL | {"arbormax", "--future--"}
    missing = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            missing |= {name.split(".")[0] for name in names} - sys.stdlib_module_names
    assert {name.replace("_", "-") for name in missing} - known == set()
    assert set(PARTS.values()) <= set(declared())


LINES = (ROOT / "constraints-lowest.txt").read_text("utf-8").splitlines()
LOWEST = dict(line.split("==") for line in LINES if "==" in line)


@pytest.mark.parametrize("package", LOWEST)
def test_the_lowest_versions_are_the_lower_bounds(package):
    bound = declared()[parse(package)[0]].split(".")
    lowest = LOWEST[package].split(".")
    assert lowest[: len(bound)] == bound
    assert set(lowest[len(bound) :]) <= {"0"}
