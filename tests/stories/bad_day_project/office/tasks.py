"""What the back office does in the background: nobody started its worker today."""

from __future__ import annotations

from penstock.integrations.django import app


@app.task(name="office:invoice", queue="invoices")
def invoice(order: int) -> str:
    """Write an invoice."""
    return f"invoice of {order}"
