"""What the release before this one still sends: a newsletter without its language."""

from __future__ import annotations

from penstock import App
from shop.database import URL

app = App(URL)


@app.task(name="shop.jobs:newsletter", queue="news")
def newsletter(customer: int) -> None:
    """Send a newsletter."""
