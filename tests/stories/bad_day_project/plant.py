"""A bad day begins: what customers, an older release and the back office leave behind."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

import django
import httpx
from django.core.management import call_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "office.settings")
django.setup()

from office.tasks import invoice  # noqa: E402  not before Django is set up
from shop import older  # noqa: E402
from shop.api import api  # noqa: E402
from shop.jobs import app, hold, index, resize, thumbnail  # noqa: E402


async def order() -> None:
    """A customer orders: the order and its jobs are one commit."""
    customer = httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop")
    async with api.router.lifespan_context(api), customer:
        placed = await customer.post("/orders", params={"customer": "ada"})
        placed.raise_for_status()


call_command("migrate", verbosity=0)
asyncio.run(order())
resize.enqueue("cat.png")
resize.enqueue("dog.png")
thumbnail.enqueue("bird.png")
older.newsletter.enqueue(7)
hold.options(expires=0.001).enqueue(3)
earlier = datetime.now(UTC) - timedelta(minutes=15)
index.options(at=earlier).enqueue_many([{"product": number} for number in range(30)])
invoice.enqueue(1)
app.close()
