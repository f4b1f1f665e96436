"""Files that pages load: our own style and scripts, and the vendored ones. Read once, at start.

A file is served because it is in this list, never because a path leads to it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.responses import Response

from penstock.operate.refusals import NotFound
from penstock.web.request import WebRequest

_FOLDER = Path(__file__).parents[1] / "static"
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {
    str(path.relative_to(_FOLDER)): (path.read_bytes(), _KINDS[path.suffix])
    for path in sorted(_FOLDER.rglob("*"))
    if path.suffix in _KINDS
}
STYLE = "style.css"


def style(request: WebRequest) -> Response:
    return _served(request, STYLE)


def show(request: WebRequest) -> Response:
    return _served(request, request.part("file"))


def _served(request: WebRequest, name: str) -> Response:
    if name not in _FILES:
        raise NotFound(f"There is no file {name}.")
    content, kind = _FILES[name]
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    # Nothing of the store is in them: a browser may cache them, and revalidate.
    headers = {"etag": etag, "cache-control": "private, no-cache"}
    if request.http.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
