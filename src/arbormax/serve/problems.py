"""Errors as RFC 9457 problems (`application/problem+json`), without internals of the service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from arbormax.errors import ArbormaxError, did_you_mean

MEDIA_TYPE = "application/problem+json"
_MAX_LISTED = 20  # errors of one request that the response lists
_MAX_EXAMINED = 2000  # above this number, building the list would take too long


class Problem(Exception):  # noqa: N818 - the term of RFC 9457
    """An error response."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, errors: Iterable[Any] = ()
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.errors = status, detail, dict(headers or {}), list(errors)

    def response(self) -> Response:
        """The HTTP response."""
        content = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            content["errors"] = self.errors
        return JSONResponse(content, self.status, self.headers, MEDIA_TYPE)


def validation_problem(error: ValidationError | RequestValidationError) -> Problem:
    """What is wrong with a request and where, without the values of the request."""
    if isinstance(error, ValidationError) and error.error_count() > _MAX_EXAMINED:
        return Problem(422, f"the request has {error.error_count()} errors, too many to list")
    found: Sequence[Any] = error.errors()
    if found and found[0]["type"] == "json_invalid":
        return Problem(400, f"the body is not JSON: {found[0]['msg'].removeprefix('Invalid JSON: ')}")
    errors = [{**_location(one["loc"]), "detail": _message(one)} for one in found[:_MAX_LISTED]]
    more = f"; the first {_MAX_LISTED} are listed" if len(found) > _MAX_LISTED else ""
    return Problem(422, f"the request has {len(found)} error{'s' * (len(found) > 1)}{more}", errors=errors)


def argument_problem(error: ArbormaxError) -> Problem:
    """An argument of the request that the library refuses."""
    errors = [{"pointer": json_pointer([error.argument] if error.argument else []), "detail": error.message}]
    return Problem(422, "the request has 1 error", errors=errors)


def _location(place: tuple[int | str, ...]) -> dict[str, str]:
    if place[:1] == ("query",):
        return {"parameter": str(place[-1])}
    return {"pointer": json_pointer(place)}


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "literal_error":
        choices = re.findall("'([^']*)'", error["ctx"]["expected"])
        return f"{error['msg']}{did_you_mean(str(error['input'])[:100], choices)}"
    return str(error["msg"]).removeprefix("Value error, ")


def json_pointer(place: Iterable[int | str]) -> str:
    """The JSON pointer of a place, as a URI fragment.

    >>> json_pointer(["texts", 0])
    '#/texts/0'
    """
    return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in place)


async def handle_error(_: Request, error: Any) -> Response:
    """The response to a problem, an invalid query, or an unknown path or method."""
    if isinstance(error, RequestValidationError):
        error = validation_problem(error)
    elif isinstance(error, HTTPException):
        unknown = error.status_code == HTTPStatus.NOT_FOUND
        detail = "unknown path; /openapi.json lists all paths" if unknown else error.detail
        error = Problem(error.status_code, detail, error.headers)
    response: Response = error.response()
    return response


HANDLERS: dict[int | type[Exception], Any] = dict.fromkeys(
    (Problem, RequestValidationError, HTTPException), handle_error
)
