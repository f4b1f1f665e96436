"""Which pages `tests.web.pictures` takes pictures of, and in which windows."""

from __future__ import annotations

from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}

# The address of each page by the name of its picture; what is in braces is looked up.
SHOP_PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/{id}",
    "flows": "/flows",
    "flow": "/flows/{id}",
    "flow-ended": "/flows/{id}?ended",
    "flow-node": "/flows/{id}/nodes/{node}",
    "queues": "/queues",
    "job-new": "/jobs/new?task=shop:charge",
    "queue": "/queues/one?name=payments",
    "rules": "/rules",
    "rule": "/rules/new?kind=pause&queue=mail&reason=provider+is+down&for=3600",
    "schedules": "/schedules",
    "schedule": "/schedules/one?name=spring%20clean",
    "schedule-often": "/schedules/one?name=reindex",
    "backfills": "/backfills",
    "backfill": "/backfills/one?task=shop:daily_report",
    "workers": "/workers",
    "reports": "/reports",
    "reports-day": "/reports?over=day",
    "reports-fortnight": "/reports?over=fortnight",
    "reports-task": "/reports?over=fortnight&task=shop:resize",
    "health": "/health",
    "audit": "/audit",
    "operations": "/operations",
    "operation-new": "/operations/new?verb=retry&q=state:failed",
}

DATASET_PAGES = {
    "datasets": "/datasets",
    "dataset": "/datasets/one?name=probes",
    "dataset-partition": "/datasets/partition?name=conflated&partition=2026-02-01",
    "dataset-failed": "/datasets/partition?name=probes&partition=2026-02-17",
    "dataset-run": "/datasets/run?name=congestion&since=2026-01&until=2026-02",
}


SHARD_PAGES = {"shards": "/shards"}
