"""Run test files on a machine that has no pytest, such as a bare GPU machine.

    PYTHONPATH=src:tests python tests/without_pytest.py tests/kernels/triton_cases.py tests/heads/test_cuda.py

It supports what those files use: parametrize, skipif, raises, skip and the monkeypatch fixture.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import SkipTest


class Parameters(tuple):
    """The values of one case."""


class Mark:
    """`pytest.mark`: parametrize and skipif have an effect, other marks have none."""

    def parametrize(self, names: Any, values: Any, ids: Any = None) -> Callable[..., Any]:
        del ids
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

        def mark(test: Any) -> Any:
            rows = [
                value if isinstance(value, Parameters) else (value,) if len(names) == 1 else value for value in values
            ]
            test.cases = [*getattr(test, "cases", []), [dict(zip(names, row, strict=True)) for row in rows]]
            return test

        return mark

    def skipif(self, condition: bool, reason: str = "") -> Callable[..., Any]:
        def mark(test: Any) -> Any:
            if condition:
                test.skipped = reason
            return test

        return mark

    def __getattr__(self, name: str) -> Any:
        def mark(*arguments: Any, **_: Any) -> Any:
            return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else lambda test: test

        return mark


class MonkeyPatch:
    """`pytest.MonkeyPatch`, for attributes."""

    def __init__(self) -> None:
        self.before: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        self.before.append((target, name, getattr(target, name)))
        setattr(target, name, value)

    def undo(self) -> None:
        for target, name, value in reversed(self.before):
            setattr(target, name, value)


@contextmanager
def raises(error: type[BaseException], match: str = "") -> Iterator[None]:
    try:
        yield
    except error as found:
        if not re.search(match, str(found)):
            raise AssertionError(f"{match!r} does not match {found}") from found
    else:
        raise AssertionError(f"expected {error.__name__}")


def skip(reason: str) -> None:
    raise SkipTest(reason)


def stand_in() -> ModuleType:
    module = ModuleType("pytest")
    parts = {"mark": Mark(), "raises": raises, "skip": skip, "MonkeyPatch": MonkeyPatch}
    for name, part in parts.items():
        setattr(module, name, part)
    module.param = lambda *values, **_: Parameters(values)  # type: ignore[attr-defined]
    return module


def run(test: Any) -> Iterator[tuple[str, str, float]]:
    """Yield the name, result and seconds of every case of a test."""
    if (reason := getattr(test, "skipped", None)) is not None:
        yield test.__name__, f"skip ({reason})", 0.0
        return
    for case in itertools.product(*getattr(test, "cases", [])):
        values = {name: value for part in case for name, value in part.items()}
        name, start, patch = (
            f"{test.__name__}[{', '.join(map(str, values.values()))}]",
            time.perf_counter(),
            MonkeyPatch(),
        )
        if "monkeypatch" in inspect.signature(test).parameters:
            values["monkeypatch"] = patch
        try:
            test(**values)
            result = "pass"
        except SkipTest as reason:
            result = f"skip ({reason})"
        except Exception:
            traceback.print_exc()
            result = "FAIL"
        finally:
            patch.undo()
        yield name, result, time.perf_counter() - start


def main(files: list[str]) -> int:
    sys.modules["pytest"] = stand_in()
    failed = passed = 0
    for file in map(Path, files):
        sys.path.insert(0, str(file.parent))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for test in [value for name, value in vars(module).items() if name.startswith("test_")]:
            for name, result, seconds in run(test):
                failed, passed = failed + (result == "FAIL"), passed + (result == "pass")
                print(f"{result} {name} ({seconds:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
