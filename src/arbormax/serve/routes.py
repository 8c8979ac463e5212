"""The addresses of the service and what each of them answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from arbormax.serve import metrics, schemas
from arbormax.serve.batching import ClosedError, QueueFullError
from arbormax.serve.limits import busy
from arbormax.serve.problems import MEDIA, Problem, of_validation
from arbormax.serve.service import Service

JSON = "application/json"
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
log = logging.getLogger("arbormax.serve")


class Direct(APIRoute):
    """A route whose function reads the request by itself, so that nothing has to be looked for before it is called."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


class Shortcut:
    """ASGI middleware: a request for a `Direct` route goes straight to its function, past FastAPI's layers."""

    def __init__(self, app: ASGIApp, routes: Iterable[Direct]) -> None:
        self.app = app
        self._routes = {(method, route.path): route for route in routes for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None or scope.get("root_path"):  # mounted, a path has more in it than ours
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        try:
            response = await route.endpoint(Request(scope, receive))
        except Problem as problem:
            response = problem.response()
        await response(scope, receive, send)


def add_routes(router: APIRouter, service: Service) -> list[Direct]:
    """Give a router the routes of one service, and tell which of them may be gone to directly."""
    asked_predict, asked_explain = schemas.predict_request(service.settings), schemas.explain_request(service.settings)

    async def predict(request: Request) -> Response:
        """The class of one or many texts, with its path, the probability at each step, and alternatives."""
        asked = await body_of(request, asked_predict)
        texts = asked.all_texts()
        waiting = service.worker.predict(texts, asked.decoding(asked.top_k))
        if len(texts) > service.settings.batch_size:
            waiting = unless_left(request, waiting)
        rows = await answered(service, waiting, texts)
        return Response(f'{{"predictions":[{",".join(rows)}]}}', media_type=JSON)

    async def explain(request: Request) -> Response:
        """The part of the tree that decides about one text, and what each word contributed to each step."""
        asked = await body_of(request, asked_explain)
        if asked.node is not None and asked.node >= service.model.taxonomy.num_nodes:
            raise no_node(service)
        waiting = unless_left(request, service.worker.call(partial(service.explain, asked)))
        return to_json(await answered(service, waiting, [asked.text]))

    direct: dict[str, Any] = {"methods": ["POST"], "tags": ["model"], "route_class_override": Direct}
    router.add_api_route("/v1/predict", predict, **direct, **told(schemas.PredictResponse, asked_predict))
    router.add_api_route("/v1/explain", explain, **direct, **told(schemas.ExplainResponse, asked_explain))

    @router.get("/v1/taxonomy", tags=["taxonomy"], **told(schemas.TaxonomyPage | schemas.TaxonomyMatches))
    async def taxonomy(query: Annotated[schemas.TaxonomyQuery, Query()]) -> Response:
        """A node with a page of its children, or with `search` the nodes whose names hold these words."""
        if query.search is not None:
            return to_json(await asyncio.to_thread(service.tree.search, query.search, query.offset, query.limit))
        if query.node >= service.model.taxonomy.num_nodes:
            raise no_node(service)
        return to_json(service.tree.page(query.node, query.offset, query.limit))

    @router.get("/v1/model", tags=["model"], **told(schemas.ModelResponse))
    async def model() -> Response:
        """What is served, and how much of it may be asked at a time."""
        return to_json(service.about())

    @router.get("/healthz", tags=["operation"])
    async def healthz() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "alive"}

    @router.get("/readyz", tags=["operation"], responses={503: PROBLEM})
    async def readyz() -> dict[str, str]:
        """Whether a request would be answered now."""
        state = service.worker.state
        if state != "ready":
            raise Problem(503, f"not ready: {state}", {"retry-after": "1"})
        return {"status": state}

    @router.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics_text() -> Response:
        """Counts and times, for Prometheus."""
        return Response(service.metrics.text(), headers={"content-type": metrics.MEDIA})

    return [route for route in router.routes if isinstance(route, Direct)]


PROBLEM: dict[str, Any] = {
    "description": "A problem, as RFC 9457 has it",
    "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/ProblemResponse"}}},
}


def told(answer: Any, body: type[BaseModel] | None = None) -> dict[str, Any]:
    """What the OpenAPI document says of a route."""
    responses = {200: {"model": answer}, "4XX": PROBLEM, "5XX": PROBLEM, 422: PROBLEM}
    if body is None:
        return {"responses": responses}
    schema = body.model_json_schema()
    content = {"schema": schema, "examples": {str(n): {"value": one} for n, one in enumerate(schema["examples"], 1)}}
    return {"responses": responses, "openapi_extra": {"requestBody": {"content": {JSON: content}, "required": True}}}


async def body_of(request: Request, model: type[M]) -> M:
    """The body of a request, checked."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON or request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, f"send the body as {JSON}, not compressed")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        problem = of_validation(error)
    raise problem  # outside, so that the error, which holds the body, is not its context


async def unless_left(request: Request, waiting: Coroutine[Any, Any, T]) -> T:
    """What is waited for; it is cancelled when the caller goes away, which costs too much to watch for a few texts."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answer, leaving = asyncio.ensure_future(waiting), asyncio.ensure_future(left())
    try:
        await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        leaving.cancel()


async def answered(service: Service, waiting: Coroutine[Any, Any, T], texts: list[str]) -> T:
    """What the worker gives for these texts, or why it gives nothing."""
    try:
        answer = await waiting
    except QueueFullError as error:
        raise busy(error.seconds) from None
    except ClosedError:
        raise Problem(503, "the service is shutting down", {"retry-after": "5", "connection": "close"}) from None
    service.metrics.texts.inc(len(texts))
    if service.settings.log_texts:
        log.info("texts: %s", json.dumps(texts, ensure_ascii=False))
    return answer


def no_node(service: Service) -> Problem:
    return Problem(404, f"there is no such node: they run from 0 to {service.model.taxonomy.num_nodes - 1}")


def to_json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False, separators=(",", ":")), media_type=JSON)
