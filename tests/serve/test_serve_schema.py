"""Requests that schemathesis derives from the OpenAPI document: valid ones are answered, and no answer breaks it."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serve_tools import served

OPERATIONS = [
    *(("POST", path) for path in ("/v1/predict", "/v1/explain")),
    *(("GET", path) for path in ("/v1/taxonomy", "/v1/model", "/healthz", "/readyz", "/metrics")),
]


@pytest.fixture(scope="module")
def document(model):
    with served(model) as client:
        yield schemathesis.openapi.from_url(f"{str(client.base_url).rstrip('/')}/openapi.json")


def test_every_operation_is_tested(document):
    operations = [result.ok() for result in document.get_all_operations()]
    found = {(operation.method.upper(), operation.path) for operation in operations}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part)
def test_every_answer_conforms_to_the_document(document, method, path, mode):
    operation = document[path][method]
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
        return  # nothing can be invalid

    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def check(case):
        # labels may be unknown, and JSON Schema takes 3.0 for an integer: valid by the document, and refused
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()
