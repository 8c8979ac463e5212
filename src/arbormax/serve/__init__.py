"""The service: a trained model behind HTTP, with a web page.

`create_app` is imported on first use, so that the parent of several worker processes does not import torch.
"""

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
from arbormax.errors import MissingDependencyError

try:
    import fastapi  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("the service", str(error.name).replace("_", "-"), "serve") from error

from arbormax.serve.server import run
from arbormax.serve.settings import Settings

if TYPE_CHECKING:
    from arbormax.serve.app import create_app

__all__ = ["Settings", "create_app", "run"]


__getattr__, __dir__ = lazy_names(__name__, {"app": ("create_app",)})
