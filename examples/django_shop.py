"""Django: an enqueue inside of `atomic()` is committed and rolled back with it.

    python examples/django_shop.py

A whole project in one file; yours has INSTALLED_APPS and DATABASES in its settings, and its tasks
in `tasks.py` of its apps. Then `manage.py penstock_worker` runs them.
"""

import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command


def main() -> None:
    """Two customers, one of whom is refused; then a worker."""
    with tempfile.TemporaryDirectory() as folder:
        settings.configure(
            INSTALLED_APPS=["penstock.integrations.django"],
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.sqlite3",  # or postgresql
                    "NAME": str(Path(folder) / "shop.db"),
                }
            },
        )
        django.setup()
        call_command("migrate", verbosity=0)  # makes the store's tables too
        story()


def story() -> None:
    """What a view would do, and what the worker does."""
    from django.db import connection, models, transaction

    from penstock.integrations.django import app
    from penstock.worker import Worker

    class Order(models.Model):
        customer = models.CharField(max_length=100)
        confirmed = models.BooleanField(default=False)

        class Meta:
            app_label = "shop"

        def __str__(self) -> str:
            return self.customer

    @app.task(name="shop:confirm")
    def confirm(order: int) -> None:
        Order.objects.filter(pk=order).update(confirmed=True)

    def place_order(customer: str) -> None:
        with transaction.atomic():
            order = Order.objects.create(customer=customer)
            confirm.enqueue(order.pk)  # no on_commit: it joins the block
            if customer == "mallory":
                raise PermissionError("not from you")

    with connection.schema_editor() as editor:
        editor.create_model(Order)
    for customer in ("ada", "mallory", "bob"):
        try:
            place_order(customer)
        except PermissionError as refusal:
            print(f"{customer}: {refusal}")

    Worker(app, drain=True).work()
    orders = Order.objects.order_by("pk").values_list("customer", "confirmed")
    print(f"{list(orders)}, {len(app.broker.history())} jobs ran")
    app.close()
    connection.close()


if __name__ == "__main__":
    main()
