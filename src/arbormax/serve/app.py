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
from arbormax.serve.middleware import PUBLIC_PATHS, Limits, Monitor, Security
from arbormax.serve.routes import add_routes
from arbormax.serve.service import Service
from arbormax.serve.settings import Settings

PAGE = Path(__file__).parent / "page"
_KEY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def create_app(model: Model, settings: Settings | None = None, name: str = "model") -> FastAPI:
    """Create the application that serves this model; it answers while its lifespan runs."""
    settings = settings or Settings()
    service = Service(model, settings, name)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        try:
            yield
        finally:
            await service.batcher.close()

    app = FastAPI(
        title=f"arbormax: {name}",
        description="Hierarchical text classification: the classes form a tree.",
        version=__version__,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers=problems.HANDLERS,
        middleware=[
            Middleware(Monitor, metrics=service.metrics, log_texts=settings.log_texts),
            Middleware(Security, settings=settings),
            Middleware(Limits, settings=settings),
        ],
    )
    app.state.service = service
    add_routes(app.router, service)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    if settings.page:
        _add_page(app)
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    app.mount("/static", StaticFiles(directory=PAGE))


def _openapi(app: FastAPI) -> dict[str, object]:
    """The OpenAPI document, created once, with the schema of problems and the ways to send an API key."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document.setdefault("components", {}).setdefault("schemas", {})
        components["ProblemResponse"] = schemas.ProblemResponse.model_json_schema()
        if app.state.service.settings.api_key is not None:
            document["components"]["securitySchemes"] = _KEY_SCHEMES
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in PUBLIC_PATHS else [{name: []} for name in _KEY_SCHEMES]
        app.openapi_schema = document
    return app.openapi_schema
