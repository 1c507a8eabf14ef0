"""Bodies of requests, checked field by field, and answers: every error is one line of JSON."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.app.images import MissingImageError
from maskcon.app.security import TooLargeError
from maskcon.discovery.columns import GoneError

Id = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Ids = Annotated[list[Id], Field(max_length=1000)]


class Wrong(Exception):  # noqa: N818 - an answer, not a failure
    """A request that cannot be answered, with the status to answer."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class Search(BaseModel):
    """What to search for."""

    model_config = ConfigDict(extra="forbid")

    positive: Ids = []
    negative: Ids = []
    uploads: Annotated[list[str], Field(max_length=64)] = []
    coarse: str | None = None
    kind: str | None = None
    k: Annotated[int, Field(ge=1, le=1000)] = 48


class Export(BaseModel):
    """How to write the images into folders."""

    model_config = ConfigDict(extra="forbid")

    links: Annotated[bool, Field(strict=True)] = False


Wanted = TypeVar("Wanted", bound=BaseModel)


def add_errors(app: FastAPI) -> None:
    """Answer every error with its status and one line."""

    def status_of(error: Exception) -> int:
        if isinstance(error, Wrong):
            return error.status
        kinds: dict[type[Exception], int] = {MissingImageError: 404, GoneError: 409, UsageError: 400}
        return next((status for kind, status in kinds.items() if isinstance(error, kind)), 500)

    async def known_error(_request: Request, error: Exception) -> Response:
        return answer({"error": str(error)}, status_of(error))

    async def too_large(_request: Request, error: Exception) -> Response:
        refusal = answer({"error": str(error)}, 413)
        refusal.headers["Connection"] = "close"  # the rest of the body stays unread
        return refusal

    async def not_found(_request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        return answer({"error": "there is nothing here" if status == 404 else str(error)}, status)

    async def wrong_query(_request: Request, error: Exception) -> Response:
        problem = error.errors()[0] if isinstance(error, RequestValidationError) else {}
        where = ".".join(str(part) for part in problem.get("loc", ())[1:])
        return answer({"error": f"{where}: {problem.get('msg', 'cannot be read')}"}, 400)

    async def unexpected(_request: Request, error: Exception) -> Response:
        traceback.print_exception(error, file=sys.stderr)
        return answer({"error": "the server failed; its terminal shows where. Edits are saved"}, 500)

    for kind in (Wrong, MaskconError):
        app.add_exception_handler(kind, known_error)
    app.add_exception_handler(TooLargeError, too_large)
    app.add_exception_handler(HTTPException, not_found)
    app.add_exception_handler(RequestValidationError, wrong_query)
    app.add_exception_handler(Exception, unexpected)


def answer(values: Any, status: int = 200) -> Response:
    """Answer with JSON; names that are not valid Unicode stay escaped."""
    return Response(json.dumps(values, allow_nan=False), status, media_type="application/json")


async def json_body(request: Request) -> dict[str, Any]:
    """Read a JSON object; other content types are refused, so that a form on another page cannot send one."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Wrong(415, "send JSON, with the header Content-Type: application/json")

    def no_number(text: str) -> float:
        raise ValueError(f"{text} is not JSON")

    try:
        values = json.loads((await request.body()) or b"{}", parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise Wrong(400, f"the body is not JSON: {str(error)[:100]}") from None
    if not isinstance(values, dict):
        raise Wrong(400, "the body is not a JSON object")
    return values


async def image_body(request: Request) -> bytes:
    """Read the bytes of an image."""
    kind = request.headers.get("content-type", "").lower()
    if not kind.startswith(("application/octet-stream", "image/")):
        raise Wrong(415, "send the bytes of an image, with the header Content-Type: application/octet-stream")
    return await request.body()


Body = Annotated[dict[str, Any], Depends(json_body)]
Content = Annotated[bytes, Depends(image_body)]


def checked(model: type[Wanted], body: dict[str, Any]) -> Wanted:
    """Check the fields of a body."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise Wrong(400, f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def edit_id(values: dict[str, Any]) -> str | None:
    """Return the identifier that the page gave its edit, if any."""
    name = values.get("edit_id")
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= 64 and name.isascii()):
        raise Wrong(400, "edit_id: give up to 64 ASCII characters")
    return name


def binary(content: bytes, headers: dict[str, str]) -> Response:
    """Answer with bytes that must not be cached."""
    return Response(
        content, media_type="application/octet-stream", headers={"Cache-Control": "no-store", **headers}
    )
