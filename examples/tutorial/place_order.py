"""Place an order: the order's row and its job are committed together, or not at all."""

import sqlite3
from decimal import Decimal

from shop import Order, confirm


def place_order(connection: sqlite3.Connection, customer: str, total: Decimal) -> int:
    """Store the order, and the job that confirms it, in one transaction."""
    with connection:  # commits at the end, rolls back if anything raises
        cursor = connection.execute(
            "insert into orders (customer, total) values (?, ?)", (customer, str(total))
        )
        number = cursor.lastrowid or 0
        confirm.options(connection=connection).enqueue(Order(number, customer, total))
        if total <= 0:
            message = "an order must cost something"
            raise ValueError(message)  # neither the order nor the job is there
    return number
