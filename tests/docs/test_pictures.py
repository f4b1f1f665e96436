"""The page of pictures shows every picture that is kept, and there is one of every page."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.web.routes import ROUTES
from tests.web.pictured_pages import DATASET_PAGES, SHAPES, SHARD_PAGES, SHOP_PAGES

DOCS = Path(__file__).parents[2] / "docs"
# Parts of a page, files, streams, and what a person sees on the way in.
NO_PAGE = re.compile(
    r"/(jobs/suggestions|flows/\{id\}/column|operations/\{id\}|live|reports/lake|health/findings"
    r"|audit\.(csv|jsonl)|metrics|enter|oidc/.*|api.*|healthz?|ready|static.*|assets.*)"
)


def test_the_page_of_pictures_shows_all_that_are_kept():
    kept = {path.name for path in (DOCS / "assets" / "pictures").iterdir()}
    shown = set(re.findall(r"assets/pictures/([\w.-]+)", (DOCS / "pictures.md").read_text()))
    names = {*SHOP_PAGES, *DATASET_PAGES, *SHARD_PAGES}

    assert kept == shown == {f"{name}-{shape}.webp" for name in names for shape in SHAPES}


def test_there_is_a_picture_of_every_page():
    places = [
        path.partition("?")[0]
        for path in (*SHOP_PAGES.values(), *DATASET_PAGES.values(), *SHARD_PAGES.values())
    ]
    patterns = [
        route.path
        for route in ROUTES
        if route.method == "GET" and not NO_PAGE.fullmatch(route.path)
    ]

    assert [each for each in patterns if each not in places] == []
