"""The public API is the one that tests/api.txt lists, so that a change to it is deliberate.

`python tests/test_api.py` writes the file. A removed or changed line needs an entry in the changelog, and the
deprecation policy of CONTRIBUTING.md applies.
"""

import importlib
import inspect
from pathlib import Path

SNAPSHOT = Path(__file__).with_name("api.txt")
PACKAGES = [
    *("arbormax", "arbormax.functional", "arbormax.decode", "arbormax.metrics", "arbormax.errors", "arbormax.heads"),
    *("arbormax.data", "arbormax.encoders", "arbormax.model", "arbormax.training", "arbormax.studies"),
    *("arbormax.uncertainty", "arbormax.sklearn", "arbormax.report", "arbormax.serve"),
]


def signature(value):
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


def describe(package, name):
    """One line for the name, and one for each public method or property of a class."""
    value = getattr(importlib.import_module(package), name)
    if not inspect.isclass(value):
        yield f"{package}.{name}{signature(value) if inspect.isroutine(value) else ''}"
        return
    yield f"{package}.{name}{'' if issubclass(value, Exception) else signature(value)}"
    if not value.__module__.startswith(package):
        return  # its home lists its methods
    for attribute, member in sorted(vars(value).items()):
        if not attribute.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            shown = getattr(member, "__func__", member)
            yield f"{package}.{name}.{attribute}{'' if isinstance(member, property) else signature(shown)}"


def describe_all():
    lines = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(getattr(module, "__all__", [])):
            lines += [line for line in describe(package, name) if " at 0x" not in line]
    return "\n".join(lines) + "\n"


def test_the_public_api_is_that_of_the_snapshot():
    expected, found = SNAPSHOT.read_text("utf-8").splitlines(), describe_all().splitlines()
    removed, added = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    assert not removed, "changed or removed: see the deprecation policy in CONTRIBUTING.md"
    assert not added, "new: run `python tests/test_api.py`"


if __name__ == "__main__":
    SNAPSHOT.write_text(describe_all(), "utf-8")
