"""A tiny classifier, trained once, its service with default settings, and a browser."""

import logging

import pytest
from page_tools import Visit
from serve_tools import served, train_classifier

from browser import open_browser


@pytest.fixture(autouse=True)
def no_log_on_the_terminal():
    """A command that ran earlier in this process has added a handler that prints log lines."""
    logger = logging.getLogger("arbormax")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def clf():
    return train_classifier()


@pytest.fixture(scope="session")
def model(clf):
    return clf.model_


@pytest.fixture(scope="module")
def client(model):
    with served(model, examples=("an owlish text",)) as client:
        yield client


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture
def visit(browser, address):
    """A visit to the page of the service that a module starts as `address`."""
    visit = Visit(browser, address)
    yield visit
    visit.close()
