import pytest

from text_toy import LABELS, TEXTS, small


@pytest.fixture(scope="module")
def clf():
    return small().fit(TEXTS, LABELS)
