"""Nested mappings and lists as a stream of events, so that depth has no limit."""

from __future__ import annotations

from collections.abc import Callable

from arbormax.taxonomy._draft import Draft


class NestedBuilder:
    """Fills a draft from mappings and lists that open and close, and from the scalars in them.

    `place` is a position or a line, as the reader counts; `describe` turns it into "line 3".
    """

    def __init__(self, draft: Draft, describe: Callable[[int], str]) -> None:
        self._draft, self._describe = draft, describe
        self._places: list[int] = []
        self._around: list[tuple[bool, int, bool]] = []  # open containers: is it a mapping, its node, is it a key
        self._key: int | None = None  # the node whose value is expected next
        draft.where = lambda node: describe(self._places[node])

    @property
    def depth(self) -> int:
        return len(self._around)

    @property
    def expects_value(self) -> bool:
        return bool(self._around) and self._around[-1][0] and self._key is not None

    @property
    def _expects_key(self) -> bool:
        return bool(self._around) and self._around[-1][0] and self._key is None

    def _above(self) -> int:
        if not self._around:
            return -1
        return self._around[-1][1] if self._key is None else self._key

    def open(self, mapping: bool, place: int) -> None:
        if self._expects_key:
            self.problem("a key is a name, found a list or a mapping", place)
            self._around.append((mapping, self._around[-1][1], True))
        else:
            self._around.append((mapping, self._above(), False))
        self._key = None

    def close(self) -> None:
        _, node, is_key = self._around.pop()
        self._key = node if is_key else None

    def name(self, name: str, place: int) -> None:
        """Add a key, or a leaf if a value is expected."""
        if not self._around:
            self.problem(f"a nested taxonomy is a mapping or a list, found only {name!r}", place)
        elif self._expects_key:
            self._key = self._add(name, self._around[-1][1], place)
        else:
            self._add(name, self._above(), place)
            self._key = None

    def null(self, place: int) -> None:
        """Read a null: the key before it is a leaf."""
        if not self._around or not self._around[-1][0]:
            self.invalid("null", place)
        self._key = None

    def invalid(self, found: str, place: int) -> None:
        """Report a number or another value that is not a name."""
        self.problem(f"a name is a string, found {found}", place)
        self._key = None

    def problem(self, text: str, place: int) -> None:
        self._draft.problems.append(f"{text} ({self._describe(place)})")

    def _add(self, name: str, parent: int, place: int) -> int:
        self._places.append(place)
        return self._draft.add(name, parent)
