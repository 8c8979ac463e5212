"""The routes of the service."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from arbormax.data.columns import read_message
from arbormax.errors import InputError, LabelError, OptionError
from arbormax.model.explain import explain as model_explain
from arbormax.model.predict import Decoding
from arbormax.serve import metrics, schemas
from arbormax.serve.batching import ClosedError, QueueFullError
from arbormax.serve.middleware import overloaded
from arbormax.serve.problems import MEDIA_TYPE, Problem, argument_problem, validation_problem
from arbormax.serve.service import Service
from arbormax.taxonomy import Taxonomy

log = logging.getLogger("arbormax.serve")
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
_JSON = "application/json"
_PROBLEM: dict[str, Any] = {
    "description": "A problem in the format of RFC 9457",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemResponse"}}},
}


def _compose(service: Service, text: schemas.Text) -> str:
    """The text of the model's input, from a string or the columns of a row."""
    most = service.settings.max_characters
    try:
        composed = read_message(service.model.config.columns, text)
        if len(composed) > most:
            raise InputError(f"expected at most {most:,} characters, found {len(composed):,}", argument="text")
    except InputError as error:
        raise argument_problem(error) from None
    return composed


def add_routes(router: APIRouter, service: Service) -> None:
    """Add the routes of a service to a router."""
    settings, taxonomy = service.settings, service.model.taxonomy
    has_columns = not service.model.config.columns.is_plain
    predict_body = schemas.predict_request(settings, taxonomy.num_leaves, has_columns)
    explain_body = schemas.explain_request(settings, taxonomy.num_leaves, has_columns)

    @router.post("/v1/predict", tags=["model"], **_document(schemas.PredictResponse, predict_body))
    async def predict(request: Request) -> Response:
        """The class of one or several texts, with its path, the probability of each step, and alternatives."""
        body = await _read_body(request, predict_body)
        given = [body.text] if body.text is not None else body.texts or []
        texts = [_compose(service, text) for text in given]
        work = service.batcher.predict(texts, _decodings(service, body, len(texts), body.top_k))
        return JSONResponse({"predictions": await _run(service, request, work, texts)})

    @router.post("/v1/explain", tags=["model"], **_document(schemas.ExplainResponse, explain_body))
    async def explain(request: Request) -> Response:
        """The relevant part of the tree for one text, and the contribution of each word to each step."""
        body = await _read_body(request, explain_body)
        if body.node is not None and body.node >= taxonomy.num_nodes:
            raise _unknown_node(taxonomy)
        options = body.model_dump(include={"siblings", "words", "node"})
        work = partial(model_explain, decoding=_decodings(service, body)[0], **options)
        texts = [_compose(service, body.text)]
        found = await _run(service, request, service.batcher.predict(texts, [work], alone=True), texts)
        return JSONResponse(found[0])

    @router.get("/v1/taxonomy", tags=["taxonomy"], **_document(schemas.TaxonomyPage | schemas.TaxonomyMatches))
    async def browse(query: Annotated[schemas.TaxonomyQuery, Query()]) -> Response:
        """A node with a page of its children, or with `search` the nodes whose names contain the words."""
        if query.search is not None:
            return JSONResponse(await asyncio.to_thread(service.tree.search, query.search, query.offset, query.limit))
        if query.node >= taxonomy.num_nodes:
            raise _unknown_node(taxonomy)
        return JSONResponse(service.tree.page(query.node, query.offset, query.limit))

    @router.get("/v1/model", tags=["model"], **_document(schemas.model_response()))
    async def model() -> Response:
        """The model, the decoders, and the limits of the service."""
        return JSONResponse(service.describe())

    @router.get("/healthz", tags=["operation"])
    async def healthz() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "alive"}

    @router.get("/readyz", tags=["operation"], responses={503: _PROBLEM})
    async def readyz() -> dict[str, str]:
        """Whether the service accepts requests now."""
        state = service.batcher.state
        if state != "ready":
            raise Problem(503, f"not ready: {state}", {"retry-after": "1"})
        return {"status": state}

    @router.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics_text() -> Response:
        """Counts and durations, for Prometheus."""
        return Response(service.metrics.render(), headers={"content-type": metrics.MEDIA_TYPE})


def _document(response: Any, body: type[schemas.DecodingRequest] | None = None) -> dict[str, Any]:
    """The entries of a route in the OpenAPI document."""
    responses = {200: {"model": response}, "4XX": _PROBLEM, "5XX": _PROBLEM, 422: _PROBLEM}
    if body is None:
        return {"responses": responses}
    schema = schemas.request_schema(body)
    examples = {str(number): {"value": value} for number, value in enumerate(schema["examples"], 1)}
    content = {_JSON: {"schema": schema, "examples": examples}}
    return {"responses": responses, "openapi_extra": {"requestBody": {"content": content, "required": True}}}


async def _read_body(request: Request, model: type[M]) -> M:
    """The validated body of a request; Pydantic parses the JSON, so that all errors have one format."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _JSON or request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, f"send the body as {_JSON}, not compressed")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        problem = validation_problem(error)
    raise problem  # outside of the except block: the error contains the body and must not become the context


async def _run(service: Service, request: Request, work: Coroutine[Any, Any, T], texts: list[str]) -> T:
    """The result of the batcher for these texts; errors become problems."""
    try:
        result = await _unless_disconnected(request, work)
    except QueueFullError as error:
        raise overloaded(error.retry_after) from None
    except ClosedError:
        raise Problem(503, "the service is shutting down", {"retry-after": "5", "connection": "close"}) from None
    service.metrics.texts.inc(len(texts))
    if service.settings.log_texts:
        log.info("texts: %s", json.dumps(texts, ensure_ascii=False))
    return result


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled if the client disconnects."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    result, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({result, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnect
        return result.result()
    finally:
        result.cancel()
        disconnect.cancel()


def _decodings(service: Service, body: schemas.DecodingRequest, texts: int = 1, top_k: int = 0) -> list[Decoding]:
    """The decoding of each text that the request selects."""
    try:
        return service.decodings(body, texts, top_k)
    except (OptionError, LabelError, InputError) as error:
        raise argument_problem(error) from None


def _unknown_node(taxonomy: Taxonomy) -> Problem:
    return Problem(404, f"unknown node: the taxonomy has the nodes 0 to {taxonomy.num_nodes - 1}")
