from django.db import connections
from django_tasks import task

from penstock.integrations.django import app
from tests.integrations.shop.models import Order


@app.task(name="shop:confirm")
def confirm(order: int) -> None:
    Order.objects.using(app.alias).filter(id=order).update(confirmed=True)


@app.task(name="shop:confirm_async")
async def confirm_async(order: int) -> None:
    await Order.objects.using(app.alias).filter(id=order).aupdate(confirmed=True)


@app.task(name="shop:cut_off")
def cut_off() -> None:
    """Lose the connection that this thread has, as after a restart of the server."""
    with connections["default"].cursor() as cursor:
        cursor.execute("select pg_terminate_backend(pg_backend_pid())")


@task(queue_name="mail")
def complain(text: str) -> None:
    """Raise an error in somebody's words."""
    raise ValueError(text)


@task(queue_name="mail")
def greet(customer: str) -> str:
    """A task in Django's own words."""
    if customer == "mallory":
        raise PermissionError("not from you")
    return f"hello {customer}"
