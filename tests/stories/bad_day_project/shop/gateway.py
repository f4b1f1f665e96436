"""What the shop knows of its payment gateway."""

from __future__ import annotations


class Declined(Exception):
    """The card was declined."""


def charge_card(order: int, amount: str) -> None:
    """Ask the gateway, which says no."""
    message = f"order {order}: the card was declined for {amount}"
    raise Declined(message)
