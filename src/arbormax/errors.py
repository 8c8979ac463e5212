"""What arbormax raises. Each error is also the built-in one that a caller would expect to catch."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "ArbormaxError",
    "InputError",
    "LabelError",
    "MissingDependencyError",
    "OptionError",
    "TableError",
    "TaxonomyError",
    "did_you_mean",
]


class ArbormaxError(Exception):
    """The parent of every error that arbormax raises on purpose."""


class _ListedError(ArbormaxError, ValueError):
    """An error that tells several defects of one input at once.

    `problems` holds every defect found, one string each; the message shows the first ones.
    """

    shown = 20

    def __init__(self, message: str, problems: Iterable[str] = ()) -> None:
        self.problems = tuple(problems) or (message,)
        if len(self.problems) > 1:
            listed = [f"  - {problem}" for problem in self.problems[: self.shown]]
            if len(self.problems) > self.shown:
                listed.append(f"  - … and {len(self.problems) - self.shown} more")
            message = "\n".join([message, *listed])
        super().__init__(message)


class TaxonomyError(_ListedError):
    """A taxonomy, or a file of one, that is not a tree of named classes; `problems` lists every defect."""


class LabelError(_ListedError):
    """A label that names no node of the taxonomy, or more than one; `problems` has one entry per label."""


class InputError(ArbormaxError, ValueError):
    """A tensor, an array or a file whose shape, range or content does not fit."""


class TableError(_ListedError, InputError):
    """A file of labelled texts that cannot be read; `problems` lists every bad row with its line."""


class OptionError(ArbormaxError, TypeError, ValueError):
    """An option that does not exist here, or one that cannot be had together with another."""


class MissingDependencyError(ArbormaxError, ImportError):
    """A package that this feature needs is not installed."""

    def __init__(self, feature: str, package: str, extra: str | None = None) -> None:
        self.given = (feature, package, extra)
        or_extra = f", or 'arbormax[{extra}]' with all that goes with it" if extra else ""
        super().__init__(f"{feature} needs the package {package}: pip install '{package.lower()}'{or_extra}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str | None]]:  # it may come from another process
        return type(self), self.given


def did_you_mean(word: str, known: Iterable[str], count: int = 3) -> str:
    """`"; did you mean 'x' or 'y'?"`, or nothing when no known word is near."""
    known = list(dict.fromkeys(known))
    folded = word.casefold()
    near = [name for name in known if name.casefold() == folded][:count]
    if not near:
        # difflib compares with every word: on a large vocabulary only words of a like start are worth it
        pool = known if len(known) <= 20_000 else [k for k in known if k[:1].casefold() == folded[:1]][:20_000]
        near = get_close_matches(word, pool, n=count, cutoff=0.6)
    if not near:
        return ""
    *first, last = [repr(name) for name in near]
    return f"; did you mean {', '.join(first)} or {last}?" if first else f"; did you mean {last}?"
