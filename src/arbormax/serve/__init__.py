"""The service: a trained model behind HTTP, with a page for people."""

from arbormax.errors import MissingDependencyError

try:
    import fastapi  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("the service", str(error.name).replace("_", "-"), "serve") from error

from arbormax.serve.app import create_app
from arbormax.serve.run import run
from arbormax.serve.settings import Settings

__all__ = ["Settings", "create_app", "run"]
