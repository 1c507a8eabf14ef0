"""The routes of the explorer: each is a few lines over a `Workspace`."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from importlib import resources
from typing import Annotated, Literal

from fastapi import FastAPI, Query, Request, Response
from starlette.responses import StreamingResponse

from maskcon.app.images import SIDES, media_type
from maskcon.app.requests import (
    Body,
    Content,
    Export,
    Search,
    Wrong,
    add_errors,
    answer,
    binary,
    checked,
    edit_id,
)
from maskcon.app.workspace import Workspace
from maskcon.data.kinds_file import kinds_bytes

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLL_SECONDS, HEARTBEAT_SECONDS = 0.2, 15.0
MOST_IMAGES = 500
CACHED_FOR_LONG = "private, max-age=31536000, immutable"


def build_app(workspace: Workspace) -> FastAPI:
    """Build the application of one session; `security.Guard` goes around it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_errors(app)
    _add_pages(app)
    _add_reading(app, workspace)
    _add_images(app, workspace)
    _add_editing(app, workspace)
    return app


def _add_pages(app: FastAPI) -> None:
    static = resources.files("maskcon.app") / "static"
    files = {entry.name: entry for entry in static.iterdir()} if static.is_dir() else {}

    def page(name: str) -> Response:
        suffix = name[name.rfind(".") :]
        if name not in files or suffix not in MEDIA_TYPES:
            raise Wrong(404, "there is nothing here")
        content = files[name].read_bytes()
        return Response(content, media_type=MEDIA_TYPES[suffix], headers={"Cache-Control": "no-cache"})

    @app.get("/")
    def index() -> Response:
        return page("index.html")

    @app.get("/static/{name}")
    def static_file(name: str) -> Response:
        return page(name)


def _add_reading(app: FastAPI, workspace: Workspace) -> None:
    @app.get("/api/state")
    def state() -> Response:
        return answer(workspace.state())

    @app.get("/api/kind")
    def kind(coarse: str, kind: str) -> Response:
        with workspace.lock:
            rows = workspace.page.kind(coarse, kind)
            images = workspace.page.images(rows.tolist())
        keys = ("id", "confidence", "role")
        return answer({"images": [{key: image[key] for key in keys} for image in images]})

    @app.get("/api/images")
    def images(ids: Annotated[str, Query(max_length=8000)] = "") -> Response:
        try:
            rows = [int(part) for part in ids.split(",") if part]
        except ValueError:
            raise Wrong(400, "ids: give numbers with commas between them") from None
        if len(rows) > MOST_IMAGES:
            raise Wrong(400, f"ids: {len(rows)} images; ask for at most {MOST_IMAGES} at once")
        count = len(workspace.editor.paths)
        if any(not 0 <= row < count for row in rows):
            raise Wrong(404, f"there is no such image; the last is {count - 1}")
        with workspace.lock:
            return answer({"images": workspace.page.images(rows)})

    @app.get("/api/labels")
    def labels() -> Response:
        with workspace.lock:
            content, revision = workspace.page.labels(), workspace.revision
        return binary(content, {"X-Revision": str(revision)})

    @app.get("/api/map")
    def map_points() -> Response:
        if not len(workspace.vectors):
            raise Wrong(404, "there is no map")
        points, how = workspace.map()
        return binary(points.astype("<f4").tobytes(), {"X-Map": how})

    @app.get("/api/map/progress")
    def map_progress() -> Response:
        done, total = workspace.map_progress()
        return answer({"done": done, "total": total})

    @app.post("/api/search")
    def search(body: Body) -> Response:
        wanted = checked(Search, body)
        return answer({"results": workspace.search(**wanted.model_dump())})

    @app.get("/api/check")
    def check(queue: Literal["mislabelled", "duplicates", "outliers"]) -> Response:
        found = workspace.check(queue)
        if isinstance(found, tuple):
            return answer({"done": found[0], "total": found[1]}, 202)
        return answer({"items": found})

    @app.get("/api/ask")
    def ask(n: Annotated[int, Query(ge=1, le=1000)] = 50) -> Response:
        return answer({"items": workspace.ask(n)})

    @app.get("/api/suggestions")
    def suggestions(coarse: str) -> Response:
        return answer({"items": workspace.suggestions(coarse)})

    @app.get("/api/kinds.csv")
    def kinds_csv() -> Response:
        with workspace.lock:
            snapshot = workspace.editor.snapshot()
        headers = {"Content-Disposition": 'attachment; filename="kinds.csv"'}
        return Response(kinds_bytes(snapshot.rows()), media_type="text/csv", headers=headers)

    @app.get("/api/sheet")
    def sheet() -> Response:
        headers = {"Content-Disposition": 'attachment; filename="kinds.html"'}
        return Response(workspace.sheet(), media_type="text/html", headers=headers)

    @app.post("/api/export")
    def export(body: Body) -> Response:
        path, images = workspace.export(links=checked(Export, body).links)
        return answer({"path": str(path), "images": images})

    @app.get("/api/events")
    async def events(request: Request) -> Response:
        return StreamingResponse(
            _changes(workspace, request),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )


async def _changes(workspace: Workspace, request: Request) -> AsyncIterator[str]:
    """Send each change of the revision, of the map, and of the problem with kinds.csv."""
    last_event, sent_at = "", 0.0
    while not workspace.closing and not await request.is_disconnected():
        done, total = workspace.map_progress()
        state = {"revision": workspace.revision, "map": "tsne" if done >= total else "pca"}
        event = json.dumps(state | {"problem": workspace.problem})
        if event != last_event:
            last_event, sent_at = event, time.monotonic()
            yield f"data: {event}\n\n"
        elif time.monotonic() - sent_at > HEARTBEAT_SECONDS:
            sent_at = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(POLL_SECONDS)


def _add_images(app: FastAPI, workspace: Workspace) -> None:
    @app.get("/thumb/{row}")
    def thumb(row: int, request: Request, size: int = 128, v: str = "") -> Response:
        if size not in SIDES:
            raise Wrong(400, f"size: give {', '.join(map(str, SIDES))}")
        tag = workspace.images.etag(row, size)
        known = v == workspace.opened.digest[: len(v)] and len(v) >= 12
        headers = {"ETag": tag, "Cache-Control": CACHED_FOR_LONG if known else "private, no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        content = workspace.images.thumbnail(row, size)
        return Response(content, media_type=media_type(content), headers=headers)

    @app.get("/image/{row}")
    def image(row: int) -> Response:
        content = workspace.images.full(row)
        return Response(
            content, media_type=media_type(content), headers={"Cache-Control": "private, no-cache"}
        )

    @app.post("/api/upload")
    def upload(content: Content) -> Response:
        if workspace.uploads is None:
            raise Wrong(400, "an embeddings file has no encoder for new images; open a run to search by file")
        name, width, height = workspace.uploads.add(content)
        return answer({"upload": name, "width": width, "height": height})


def _add_editing(app: FastAPI, workspace: Workspace) -> None:
    @app.post("/api/edits")
    def edit(body: Body) -> Response:
        edit_id(body)
        return answer(workspace.edit(body))

    @app.post("/api/undo")
    def undo(body: Body) -> Response:
        return answer(workspace.undo(edit_id(body)))

    @app.post("/api/redo")
    def redo(body: Body) -> Response:
        return answer(workspace.redo(edit_id(body)))

    @app.post("/api/follow")
    def follow(body: Body) -> Response:
        return answer(workspace.follow(edit_id(body)))


logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
