"""Audit: who did what, when and why; page by page, and as a file."""

from __future__ import annotations

import csv
import io
import shlex
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.errors import Refused
from penstock.operate.audit import KINDS, AuditQuery, Deed, Deeds, audit_query, deed_json
from penstock.operate.audit_text import AuditSentence, told_of
from penstock.web.request import Asked

PAGE = 50
MOST_EXPORTED = 10_000
MOST_LOOKED = 50_000  # rows, for a file
_COLUMNS = ("position", "at", "kind", "author", "reason", "job", "queue", "task", "told", "says")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def show(asked: Asked) -> Response:
    mistake, status, found = "", 200, Deeds([])
    before = asked.word("before")
    try:
        found = asked.verbs.audit(_wanted(asked), before or None, PAGE)
    except Refused as error:
        mistake, status = str(error), 422
    given = {
        name: asked.word(name).strip() or None for name in ("kind", "author", "since", "until")
    }
    more = None if found.before is None else asked.link("/audit", **given, before=found.before)
    rows_only = asked.request.headers.get("hx-request") == "true" and bool(before)
    return asked.page(
        "audit_rows.html" if rows_only else "audit.html",
        status,
        title="Audit",
        cli=_cli(given),
        deeds=[_row(asked, deed) for deed in found.deeds],
        found=found,
        mistake=mistake,
        kinds=KINDS,
        given={name: value or "" for name, value in given.items()},
        more=more,
        as_csv=asked.link("/audit.csv", **given),
        as_lines=asked.link("/audit.jsonl", **given),
        most_exported=MOST_EXPORTED,
    )


def lines(asked: Asked) -> Response:
    found = _exported(asked)
    text = b"".join(msgspec.json.encode(deed_json(deed)) + b"\n" for deed in found.deeds)
    return _file(text, "application/jsonl", "audit.jsonl", found)


def table(asked: Asked) -> Response:
    found = _exported(asked)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for deed in found.deeds:
        writer.writerow([_cell(value) for value in _values(deed)])
    return _file(out.getvalue().encode(), "text/csv; charset=utf-8", "audit.csv", found)


def _wanted(asked: Asked) -> AuditQuery:
    names = ("kind", "author", "since", "until")
    kind, author, since, until = (asked.word(name).strip() for name in names)
    return audit_query([kind] if kind else [], author, since, until, asked.verbs.now)


def _exported(asked: Asked) -> Deeds:
    limit = asked.number("limit", MOST_EXPORTED, 1, MOST_EXPORTED)
    before = asked.word("before")
    return asked.verbs.audit(_wanted(asked), before or None, limit, MOST_LOOKED)


def _row(asked: Asked, deed: Deed) -> tuple[Deed, AuditSentence, str | None]:
    """A deed, the same in words, and the page of what it is about."""
    told = told_of(deed)
    kind, name = told.thing or ("", "")
    if kind == "backfill":
        return deed, told, asked.link("/backfills/one", task=name)
    if kind == "operation" and asked.site.operations.get(name) is None:
        return (
            deed,
            told,
            asked.link("/jobs", q=deed.says.get("filter")) if "filter" in deed.says else None,
        )
    if kind in {"queue", "schedule"}:
        return deed, told, asked.link(f"/{kind}s/one", name=name)
    return deed, told, f"{asked.root}/{kind}s/{name}" if kind else None


def _values(deed: Deed) -> list[Any]:
    row = {**deed_json(deed), "told": str(told_of(deed))}
    return [*(row[name] for name in _COLUMNS[:-1]), msgspec.json.encode(deed.says).decode()]


def _cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _file(content: bytes, kind: str, name: str, found: Deeds) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if found.before is not None:
        headers["penstock-before"] = found.before  # there is more: ask again with this
    return Response(content, media_type=kind, headers=headers)


def _cli(given: dict[str, str | None]) -> str:
    words = [f"--{name} {shlex.quote(value)}" for name, value in given.items() if value]
    return " ".join(["penstock history --audit", *words])
