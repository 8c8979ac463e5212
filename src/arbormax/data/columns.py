"""The columns of a table that make the text of a classifier: texts, a template, and categories beside the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Self

from arbormax.data.tokens import FIELD
from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.taxonomy.formats import join_texts


@dataclass(frozen=True)
class InputColumns:
    """The columns of a row that make one text.

    The texts of several columns are joined, or put into a template. The values of the columns in `also` are categories:
    each is one token, whatever words it contains, and differs from every word of a text.

    >>> columns = InputColumns(("name", "description"), also=("brand",))
    >>> columns.compose({"name": "Red scarf", "description": "Warm.", "brand": "Acme & Co"})
    'Red scarf. Warm. \\ufdd0 brand: Acme & Co'
    """

    text: tuple[str, ...] = ("text",)
    template: str | None = None  # such as "{name}. {description}"
    also: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        text: str | int | Sequence[str | int] | None = None,
        template: str | None = None,
        also: str | int | Sequence[str | int] | None = None,
        text_argument: str = "text",
    ) -> Self:
        """The columns for arguments of a caller, validated; one column or several."""
        names = _names(text, text_argument)
        if template is not None:
            if names:
                raise OptionError(f"cannot be combined with {text_argument}, which it names", argument="template")
            names = _fields(template)
        found = cls(names or ("text",), template, _names(also, "also"))
        if repeated := next((name for name in found.also if name in found.text), None):
            raise OptionError(f"the column {repeated!r} is a text already", argument="also")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return (*self.text, *self.also)

    @property
    def is_plain(self) -> bool:
        """Whether the text is the content of one column."""
        return len(self.text) == 1 and self.template is None and not self.also

    def compose(self, row: Mapping[Any, Any]) -> str:
        """The text of a row, whose values are strings or None."""
        if self.is_plain:
            return row[self.text[0]] or ""
        values = {name: str(row.get(name) or "").replace(FIELD, "").strip() for name in self.names}
        if self.template is not None:
            text = "".join(
                before + (values[name] if name is not None else "")
                for before, name, *_ in Formatter().parse(self.template)
            )
            text = text if any(values[name] for name in self.text) else ""
        else:
            text = ""
            for name in self.text:
                text = join_texts(text, values[name])
        fields = (f" {FIELD} {name}: {values[name]}" for name in self.also if values[name])
        return text.strip() + "".join(fields)


def read_message(columns: InputColumns, message: str | Mapping[str, Any]) -> str:
    """The text of one message: a plain text, or the values of the columns."""
    if isinstance(message, str):
        return message
    if unknown := next((name for name in message if name not in columns.names), None):
        known = ", ".join(map(repr, columns.names))
        hint = did_you_mean(str(unknown), columns.names)
        raise InputError(f"the model has no column {unknown!r}{hint} (its columns: {known})", argument="text")
    if wrong := next(
        (name for name, value in message.items() if not isinstance(value, str | int | float | None)), None
    ):
        raise InputError(f"the value of {wrong!r} is a text or a number, found {message[wrong]!r}", argument="text")
    values = {name: None if value is None else str(value) for name, value in message.items()}
    return columns.compose({**dict.fromkeys(columns.names), **values})


def _names(given: str | int | Sequence[str | int] | None, argument: str) -> tuple[str, ...]:
    names: Iterable[Any] = () if given is None else (given,) if isinstance(given, (str, int)) else given
    found = tuple(str(name) for name in names)
    if len(set(found)) < len(found) or not all(found):
        raise OptionError(f"expected different names of columns, found {', '.join(found)}", argument=argument)
    return found


def _fields(template: str) -> tuple[str, ...]:
    """The columns that a template names, each once."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise OptionError(f"{template!r} is not a template: {str(error).lower()}", argument="template") from None
    names = dict.fromkeys(name for _, name, *_ in parts if name is not None)
    if not names or not all(names) or any(spec or conversion for _, _, spec, conversion in parts):
        expected = "names of columns in braces, such as '{name}. {description}'"
        raise OptionError(f"expected {expected}, found {template!r}", argument="template")
    return tuple(str(name) for name in names)
