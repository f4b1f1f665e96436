"""The page Shards: the map of buckets drawn, and the moves; nothing is changed from here.

Buckets are moved on the command line, which knows the URLs of both stores.
"""

from __future__ import annotations

from starlette.responses import Response

from penstock.enqueue.ids import BUCKETS
from penstock.web.request import WebRequest


def show(request: WebRequest) -> Response:
    found = request.store.shards()
    return request.page(
        "shards.html",
        title="Shards",
        cli="penstock shards status",
        shards=found.shards,
        moves=found.moves,
        buckets=BUCKETS,
    )
