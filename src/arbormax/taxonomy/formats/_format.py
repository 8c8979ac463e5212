"""What a taxonomy format consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy


@dataclass(frozen=True)
class Format:
    """How files of one format are read and written.

    `read(text, draft, **options)` fills a draft. `write(taxonomy)` yields texts; the first one that reads back as the
    same taxonomy is written. `matches(text)` distinguishes the format from others with the same suffix; the format
    without it is the default of that suffix.
    """

    title: str  # its name in messages
    suffixes: tuple[str, ...]
    read: Callable[..., None]
    write: Callable[[Taxonomy], Iterator[str]]
    options: tuple[str, ...] = ()
    keeps_all: bool = False  # whether it stores every taxonomy completely
    names_repeat: bool = True  # whether several nodes may have the same name
    matches: Callable[[str], bool] | None = None
