"""Files to load, and the defects that loading them reports."""

from __future__ import annotations

import pytest

from arbormax import Taxonomy
from arbormax.errors import TaxonomyError


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str | bytes):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def load(write):
    return lambda name, text, **options: Taxonomy.load(write(name, text), **options)


@pytest.fixture
def problems(write):
    def problems(name: str, text: str | bytes, **options) -> tuple[str, ...]:
        with pytest.raises(TaxonomyError) as caught:
            Taxonomy.load(write(name, text), **options)
        assert str(caught.value).startswith(name)
        return caught.value.problems

    return problems


@pytest.fixture
def fix(write):
    def fix(name: str, text: str, **options) -> dict[str, object]:
        with pytest.raises(TaxonomyError) as caught:
            Taxonomy.load(write(name, text), **options)
        return caught.value.fix

    return fix
