"""The service as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.staticfiles import StaticFiles
from starlette.middleware import Middleware
from starlette.responses import FileResponse, Response

from arbormax._version import __version__
from arbormax.model.network import Model
from arbormax.serve import problems, schemas
from arbormax.serve.limits import Limits
from arbormax.serve.routes import Direct, Shortcut, add_routes
from arbormax.serve.security import OPEN, Security
from arbormax.serve.service import Service
from arbormax.serve.settings import Settings
from arbormax.serve.watch import Watch

PAGE = Path(__file__).parent / "page"
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_FRESH = {"cache-control": "no-cache"}  # kept by the browser, asked for again by its ETag


def create_app(model: Model, settings: Settings | None = None, name: str = "model") -> FastAPI:
    """The application that serves this model; it answers while its lifespan runs."""
    settings = settings or Settings()
    service = Service(model, settings, name)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        try:
            yield
        finally:
            await service.worker.close()

    direct: list[Direct] = []  # filled below, looked at by the first request
    app = FastAPI(
        title=f"arbormax: {name}",
        description="Hierarchical text classification: classes form a tree.",
        version=__version__,
        docs_url=None,  # they load from other addresses
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers=problems.HANDLERS,
        middleware=[
            Middleware(Watch, metrics=service.metrics, log_texts=settings.log_texts),
            Middleware(Security, settings=settings),
            Middleware(Limits, settings=settings, company=service.company),
            Middleware(Shortcut, routes=direct),
        ],
    )
    app.state.service = service
    direct += add_routes(app.router, service)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    if settings.page and PAGE.is_dir():
        _add_page(app)
    app.state.layers = list(app.user_middleware)  # what somebody adds wants to see all requests
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers=_FRESH)

    app.mount("/static", _Files(directory=PAGE))


class _Files(StaticFiles):
    def file_response(self, *args: object, **options: object) -> Response:
        response = super().file_response(*args, **options)  # type: ignore[arg-type]
        response.headers.update(_FRESH)
        return response


def _document(app: FastAPI) -> dict[str, object]:
    """The OpenAPI document, made once, with the schema of problems in it."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        found = made.setdefault("components", {}).setdefault("schemas", {})
        found["ProblemResponse"] = schemas.ProblemResponse.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own form of errors
            found.pop(unused, None)
        if app.state.service.settings.api_key is not None:
            made["components"]["securitySchemes"] = _KEYS
            for path, operations in made["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in OPEN else [{name: []} for name in _KEYS]
        app.openapi_schema = made
    return app.openapi_schema
