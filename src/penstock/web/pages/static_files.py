"""Files that pages load: our own style and scripts, and the vendored ones. Read once, at start.

A file is served because it is in this list, never because a path leads to it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.responses import Response

from penstock.operate.refusals import NotFound
from penstock.web.request import Asked

_FOLDER = Path(__file__).parents[1] / "static"
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {
    str(path.relative_to(_FOLDER)): (path.read_bytes(), _KINDS[path.suffix])
    for path in sorted(_FOLDER.rglob("*"))
    if path.suffix in _KINDS
}
STYLE = "style.css"


def style(asked: Asked) -> Response:
    return _served(asked, STYLE)


def show(asked: Asked) -> Response:
    return _served(asked, asked.part("file"))


def _served(asked: Asked, name: str) -> Response:
    if name not in _FILES:
        raise NotFound(f"There is no file {name}.")
    content, kind = _FILES[name]
    mark = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    # They hold nothing of the store, so a browser may keep them, and ask whether they changed.
    headers = {"etag": mark, "cache-control": "private, no-cache"}
    if asked.request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
