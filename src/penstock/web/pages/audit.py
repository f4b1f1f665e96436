"""The page Audit: who did what, when and why; and the same as a CSV or JSON lines file."""

from __future__ import annotations

import csv
import io
import shlex
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.errors import Refused
from penstock.operate.audit import KINDS, AuditEntry, AuditPage, audit_entry_json
from penstock.operate.audit_text import AuditSentence, audit_sentence
from penstock.web.request import WebRequest
from penstock.web.rest.reads import audit_query_of

PAGE = 50
MOST_EXPORTED = 10_000
MOST_LOOKED = 50_000  # rows, for a file
_COLUMNS = (
    "position",
    "at",
    "kind",
    "author",
    "login",
    "reason",
    "job",
    "queue",
    "task",
    "told",
    "says",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def show(request: WebRequest) -> Response:
    mistake, status, found = "", 200, AuditPage([])
    before = request.word("before")
    try:
        found = request.store.audit(audit_query_of(request), before or None, PAGE)
    except Refused as error:
        mistake, status = str(error), 422
    given = {
        name: request.word(name).strip() or None for name in ("kind", "author", "since", "until")
    }
    more = None if found.before is None else request.link("/audit", **given, before=found.before)
    return request.page(
        "audit_rows.html" if request.is_htmx and before else "audit.html",
        status,
        title="Audit",
        cli=_cli(given),
        entries=[_row(request, entry) for entry in found.entries],
        found=found,
        mistake=mistake,
        kinds=KINDS,
        given={name: value or "" for name, value in given.items()},
        more=more,
        as_csv=request.link("/audit.csv", **given),
        as_lines=request.link("/audit.jsonl", **given),
        most_exported=MOST_EXPORTED,
    )


def lines(request: WebRequest) -> Response:
    found = _exported(request)
    text = b"".join(msgspec.json.encode(audit_entry_json(entry)) + b"\n" for entry in found.entries)
    request.store.record_export("audit.jsonl", len(found.entries))
    return _file(text, "application/jsonl", "audit.jsonl", found)


def table(request: WebRequest) -> Response:
    found = _exported(request)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for entry in found.entries:
        writer.writerow([_cell(value) for value in _values(entry)])
    request.store.record_export("audit.csv", len(found.entries))
    return _file(out.getvalue().encode(), "text/csv; charset=utf-8", "audit.csv", found)


def _exported(request: WebRequest) -> AuditPage:
    limit = request.number("limit", MOST_EXPORTED, 1, MOST_EXPORTED)
    before = request.word("before")
    return request.store.audit(audit_query_of(request), before or None, limit, MOST_LOOKED)


def _row(request: WebRequest, entry: AuditEntry) -> tuple[AuditEntry, AuditSentence, str | None]:
    """An entry, its sentence, and the address of the page of its subject."""
    sentence = audit_sentence(entry)
    kind, name = sentence.subject or ("", "")
    if kind == "backfill":
        return entry, sentence, request.link("/backfills/one", task=name)
    if kind == "operation" and request.site.operations.get(name) is None:
        return (
            entry,
            sentence,
            request.link("/jobs", q=entry.says.get("filter")) if "filter" in entry.says else None,
        )
    if kind in {"queue", "schedule"}:
        return entry, sentence, request.link(f"/{kind}s/one", name=name)
    return entry, sentence, f"{request.root}/{kind}s/{name}" if kind else None


def _values(entry: AuditEntry) -> list[Any]:
    row = {**audit_entry_json(entry), "told": str(audit_sentence(entry))}
    return [*(row[name] for name in _COLUMNS[:-1]), msgspec.json.encode(entry.says).decode()]


def _cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _file(content: bytes, kind: str, name: str, found: AuditPage) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if found.before is not None:
        headers["penstock-before"] = found.before  # there is more: the next request continues here
    return Response(content, media_type=kind, headers=headers)


def _cli(given: dict[str, str | None]) -> str:
    words = [f"--{name} {shlex.quote(value)}" for name, value in given.items() if value]
    return " ".join(["penstock history --audit", *words])
