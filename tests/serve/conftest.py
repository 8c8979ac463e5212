"""A tiny classifier, trained once, and a service of it with the usual settings."""

import pytest
from serve_toy import classifier, served


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
