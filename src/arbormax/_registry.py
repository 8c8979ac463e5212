"""Named implementations of one kind of thing: heads, decoders, measures, encoders, formats, datasets.

A registry is cheap to import: an entry may be the object itself or the place where it is defined, which is imported
when the entry is first used. Command-line choices, schemas and tables of the documentation read the registries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Generic, TypeVar

from arbormax.errors import OptionError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries by name, in the order in which they were added.

    >>> shapes = Registry("shape")
    >>> shapes.add("square", "fractions:Fraction", "four equal sides")
    >>> shapes.names, shapes["square"].__name__
    (('square',), 'Fraction')
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind  # what one entry is called in messages, and the name of the argument that selects it
        self._entries: dict[str, T | str] = {}
        self._summaries: dict[str, str] = {}

    def add(self, name: str, entry: T | str, summary: str = "") -> None:
        """Add an entry: the object itself, or `"module:attribute"`, imported on first use."""
        self._entries[name] = entry
        self._summaries[name] = summary

    def remove(self, name: str) -> None:
        """Remove an entry that was added."""
        del self._entries[name], self._summaries[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def summary(self, name: str) -> str:
        """One line about an entry, for help texts and tables."""
        return self._summaries[name]

    def check(self, name: Any, argument: str | None = None, listed: Iterable[str] | None = None) -> str:
        """The name if it is registered, else an error that lists the known names, or those of `listed`."""
        if isinstance(name, str) and name in self._entries:
            return name
        known = tuple(self.names if listed is None else listed)
        hint = did_you_mean(str(name), known)
        raise OptionError(
            f"unknown {self.kind} {name!r}{hint} (available: {', '.join(known)})",
            argument=argument or self.kind.replace(" ", "_"),
        )

    def __getitem__(self, name: str) -> T:
        entry = self._entries[self.check(name)]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(module), attribute)
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self._entries)
