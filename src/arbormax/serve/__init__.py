"""The service: a trained model behind HTTP, with a page for people.

The application is loaded when it is asked for: a program that looks after the processes of a service needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arbormax.errors import MissingDependencyError

try:
    import fastapi  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("the service", str(error.name).replace("_", "-"), "serve") from error

from arbormax.serve.settings import Settings

if TYPE_CHECKING:
    from arbormax.serve.app import create_app
    from arbormax.serve.server import run

__all__ = ["Settings", "create_app", "run"]

_ROOMS = {"create_app": "arbormax.serve.app", "run": "arbormax.serve.server"}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)
