"""Errors as RFC 9457 problems: `application/problem+json`, with nothing in them of how the service is made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

MEDIA = "application/problem+json"
_SHOWN, _READ = 20, 2000  # defects of one request that are told, and beyond which it takes too long to look at them


class Problem(Exception):  # noqa: N818 - RFC 9457's own word
    """An answer that is an error."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, errors: Iterable[Any] = ()
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.errors = status, detail, dict(headers or {}), list(errors)

    def response(self) -> Response:
        """The answer itself."""
        content = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            content["errors"] = self.errors
        return Response(json.dumps(content), self.status, self.headers, MEDIA)


def of_validation(error: ValidationError | RequestValidationError) -> Problem:
    """What is wrong with a request: where and what, without what was found there."""
    if isinstance(error, ValidationError) and error.error_count() > _READ:
        return Problem(422, f"the request has {error.error_count()} defects, which are too many to tell")
    told: Sequence[Any] = error.errors()
    if told and told[0]["type"] == "json_invalid":
        return Problem(400, f"the body is not JSON: {told[0]['msg'].removeprefix('Invalid JSON: ')}")
    errors = [{**_where(one["loc"]), "detail": _what(one)} for one in told[:_SHOWN]]
    more = f", the first {_SHOWN} of which are told" if len(told) > _SHOWN else ""
    return Problem(422, f"the request has {len(told)} defect{'s' * (len(told) > 1)}{more}", errors=errors)


def _where(place: tuple[int | str, ...]) -> dict[str, str]:
    if place[:1] == ("query",):
        return {"parameter": str(place[-1])}
    return {"pointer": pointer(place)}


def _what(one: Mapping[str, Any]) -> str:
    if one["type"] == "extra_forbidden":
        return "there is no such field"
    return str(one["msg"]).removeprefix("Value error, ")


def pointer(place: Iterable[int | str]) -> str:
    """The JSON pointer to a place, as a fragment.

    >>> pointer(["texts", 0])
    '#/texts/0'
    """
    return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in place)


async def on_problem(_: Request, error: Exception) -> Response:
    """The answer to a request that raised a problem."""
    assert isinstance(error, Problem)
    return error.response()


async def on_validation(_: Request, error: Exception) -> Response:
    """The answer to a query that does not fit."""
    assert isinstance(error, RequestValidationError)
    return of_validation(error).response()


async def on_http(request: Request, error: Exception) -> Response:
    """The answer to an unknown address or method."""
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "there is nothing at this address; /openapi.json lists what there is"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.method} is not possible here"
    return Problem(error.status_code, detail, error.headers).response()


HANDLERS: dict[int | type[Exception], Any] = {
    Problem: on_problem,
    RequestValidationError: on_validation,
    HTTPException: on_http,
}
