"""A tiny classifier, trained once, a service of it with the usual settings, and a browser."""

import pytest
from serve_toy import classifier, served

from browser import browsing


@pytest.fixture(scope="session")
def clf():
    return classifier()


@pytest.fixture(scope="session")
def model(clf):
    return clf.model_


@pytest.fixture(scope="module")
def client(model):
    with served(model, examples=("an owlish text",)) as client:
        yield client


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found
