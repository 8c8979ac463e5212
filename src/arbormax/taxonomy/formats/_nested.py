"""Nested mappings and lists, read as a stream, so that depth has no limit."""

from __future__ import annotations

from collections.abc import Callable

from arbormax.taxonomy._draft import Draft


class NestedBuilder:
    """Fills a draft from mappings and lists that open and close and from the scalars in them.

    `place` is a number of the reader's own, a position or a line; `tell` turns it into "line 3".
    """

    def __init__(self, draft: Draft, tell: Callable[[int], str]) -> None:
        self._draft, self._tell = draft, tell
        self._places: list[int] = []
        self._around: list[tuple[bool, int, bool]] = []  # each open container: a mapping?, its node, is it a key?
        self._key: int | None = None  # the node whose value comes next, where one is awaited
        draft.where = lambda node: tell(self._places[node])

    @property
    def depth(self) -> int:
        return len(self._around)

    @property
    def awaits_value_of_key(self) -> bool:
        return bool(self._around) and self._around[-1][0] and self._key is not None

    @property
    def _awaits_key(self) -> bool:
        return bool(self._around) and self._around[-1][0] and self._key is None

    def _above(self) -> int:
        if not self._around:
            return -1
        return self._around[-1][1] if self._key is None else self._key

    def open(self, mapping: bool, place: int) -> None:
        if self._awaits_key:
            self.problem("a key is a name, found a list or a mapping", place)
            self._around.append((mapping, self._around[-1][1], True))
        else:
            self._around.append((mapping, self._above(), False))
        self._key = None

    def close(self) -> None:
        _, node, is_key = self._around.pop()
        self._key = node if is_key else None

    def name(self, name: str, place: int) -> None:
        """A key, or a leaf where a value is awaited."""
        if not self._around:
            self.problem(f"a nested taxonomy is a mapping or a list, found only {name!r}", place)
        elif self._awaits_key:
            self._key = self._add(name, self._around[-1][1], place)
        else:
            self._add(name, self._above(), place)
            self._key = None

    def nothing(self, place: int) -> None:
        """A null: the key before it is a leaf."""
        if not self._around or not self._around[-1][0]:
            self.no_name("null", place)
        self._key = None

    def no_name(self, found: str, place: int) -> None:
        """A number or another value that cannot be a name."""
        self.problem(f"a name is a string, found {found}", place)
        self._key = None

    def problem(self, text: str, place: int) -> None:
        self._draft.problems.append(f"{text} ({self._tell(place)})")

    def _add(self, name: str, parent: int, place: int) -> int:
        self._places.append(place)
        return self._draft.add(name, parent)
