"""Django: jobs in the project's database, in its transactions, over connections that hold."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import KeyRing, Refused, State
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.job import failed
from penstock.testing.conformance.factories import claim_for
from penstock.testing.postgres import create_database, drop_database
from penstock.worker import Worker

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shop(
    postgres_server_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Django, set up once in this process; its databases are there and migrated."""
    url = create_database(postgres_server_url)
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.integrations.shop.settings",
        "SHOP_POSTGRES": url,
        "SHOP_FILE": str(tmp_path_factory.mktemp("shop") / "shop.db"),
    }
    os.environ.update(environment)
    import django
    from django.core.management import call_command
    from django.db import connections
    from django.test import override_settings

    django.setup()
    for alias in ("default", "file"):
        with override_settings(PENSTOCK={"DATABASE": alias}):
            call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
    yield environment
    connections.close_all()
    for name in environment:
        os.environ.pop(name)
    drop_database(postgres_server_url, url)


@pytest.fixture(params=["default", "file"])
def alias(request: pytest.FixtureRequest, shop: Any) -> Iterator[str]:
    """Both databases in turn: the shop's orders and its jobs are in it."""
    from django.test import override_settings

    with override_settings(PENSTOCK={"DATABASE": request.param}):
        yield from _emptied(request.param)


@pytest.fixture
def default(shop: Any) -> Iterator[str]:
    yield from _emptied("default")


def _emptied(alias: str) -> Iterator[str]:
    from django.db import connections

    from penstock.broker.filter import Filter
    from penstock.integrations.django import app
    from tests.integrations.shop.models import Order

    yield alias
    Order.objects.using(alias).all().delete()
    app.broker.act("delete", [job.id for job in app.broker.find(Filter(), limit=1000).jobs])
    app.close()
    connections.close_all()


def ready() -> int:
    from penstock.integrations.django import app

    return sum(count.ready for count in app.broker.count())


def place_order(alias: str, customer: str) -> int:
    from tests.integrations.shop.models import Order
    from tests.integrations.shop.tasks import confirm

    order = Order.objects.using(alias).create(customer=customer)
    confirm.enqueue(order.pk)
    return order.pk


def test_a_job_of_an_atomic_block_is_committed_with_it_and_only_then(alias):
    from django.db import transaction

    from tests.integrations.shop.models import Order

    with transaction.atomic(using=alias):
        place_order(alias, "ada")
        assert seen_from_outside(alias) == 0
        place_order(alias, "bob")
    assert seen_from_outside(alias) == 2

    with pytest.raises(PermissionError):
        _refused(alias)

    assert (Order.objects.using(alias).count(), seen_from_outside(alias)) == (2, 2)


def test_inside_of_a_block_the_job_that_holds_a_unique_key_is_named(alias):
    """A51: the caller is told which job stands, also before anything is committed."""
    from django.db import transaction

    from tests.integrations.shop.tasks import confirm

    standing = confirm.options(unique="one").enqueue(1)
    with transaction.atomic(using=alias):
        joined = confirm.options(unique="one").enqueue(2)
        fresh = confirm.options(unique="two").enqueue(3)
        within = confirm.options(unique="two").enqueue(4)

    assert (joined.id, joined.stored) == (standing.id, False)
    assert (within.id, within.stored) == (fresh.id, False)
    assert ready() == 2


def _refused(alias: str) -> None:
    from django.db import transaction

    with transaction.atomic(using=alias):
        place_order(alias, "mallory")
        raise PermissionError


def seen_from_outside(alias: str) -> int:
    """What another connection sees, while this thread's is in a transaction."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(ready()))
    thread.start()
    thread.join()
    return found[0]


def test_a_savepoint_takes_its_jobs_along(alias):
    from django.db import transaction

    with transaction.atomic(using=alias):
        place_order(alias, "ada")
        with pytest.raises(PermissionError):
            _refused(alias)
        place_order(alias, "bob")

    assert ready() == 2


def test_outside_of_a_block_a_job_is_stored_at_once(alias):
    place_order(alias, "ada")

    assert ready() == 1


def test_a_connection_can_be_named_and_another_database_is_refused(alias):
    from django.db import connections, transaction

    from tests.integrations.shop.tasks import confirm

    other = {"default": "file", "file": "default"}[alias]
    with transaction.atomic(using=alias):
        confirm.options(connection=connections[alias]).enqueue(1)
        with transaction.atomic(using=other), pytest.raises(Refused):
            confirm.options(connection=connections[other]).enqueue(2)
        transaction.set_rollback(True, using=alias)

    assert ready() == 0


def test_what_is_refused_leaves_the_block_usable(alias):
    from django.db import transaction

    from tests.integrations.shop.models import Order
    from tests.integrations.shop.tasks import confirm

    with transaction.atomic(using=alias):
        place_order(alias, "ada")
        with pytest.raises(Refused):
            confirm.enqueue("not a number")

    assert (Order.objects.using(alias).count(), ready()) == (1, 1)


def test_a_waiting_worker_hears_of_it_after_the_commit(default):
    from django.db import transaction

    from penstock.integrations.django import app

    place_order(default, "ada")
    broker = app.broker
    broker.wait(None, 0.05)
    with transaction.atomic():
        place_order(default, "bob")

    assert broker.wait(None, 10)


def test_tasks_use_the_database_and_leave_no_broken_connection(default):
    from penstock.integrations.django import app
    from tests.integrations.shop.models import Order
    from tests.integrations.shop.tasks import confirm_async, cut_off

    cut_off.enqueue()
    first = place_order(default, "ada")
    second = Order.objects.create(customer="bob").pk
    confirm_async.enqueue(second)
    Worker(app, threads=1, drain=True).work()

    confirmed = Order.objects.filter(confirmed=True).values_list("pk", flat=True)
    assert set(confirmed) == {first, second}


def test_connections_that_are_too_old_are_closed_around_each_task(shop):
    from django.db import connections
    from django.test import override_settings

    from penstock.integrations.django import app

    open_before: list[bool] = []

    @app.task(name="shop:look")
    def look() -> None:
        open_before.append(connections["file"].connection is not None)
        connections["file"].ensure_connection()

    try:
        with override_settings(PENSTOCK={"DATABASE": "file"}):
            for _ in range(3):
                look.enqueue()
            Worker(app, threads=1, drain=True).work()
            app.close()
    finally:
        app.tasks.pop("shop:look")

    assert open_before == [False, False, False]


def test_the_testing_kit_works_inside_of_a_block(default):
    from django.db import transaction

    from penstock.integrations.django import app
    from tests.integrations.shop.models import Order

    with app.testing() as t:
        with transaction.atomic():
            place_order(default, "ada")
            assert len(t.jobs()) == 1
        t.drain()

    assert Order.objects.get().confirmed


def test_manage_py_runs_a_worker(shop, default):
    order = place_order(default, "ada")
    command = "from django.core.management import execute_from_command_line as run; import sys"
    arguments = ["manage.py", "penstock_worker", "--drain", "--processes", "1"]

    ran = subprocess.run(
        [sys.executable, "-c", f"{command}; run({arguments!r})"],
        cwd=ROOT,
        env={**os.environ, **shop},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    from tests.integrations.shop.models import Order

    assert ran.returncode == 0, ran.stderr
    assert "shop:confirm" in ran.stderr
    assert Order.objects.get(pk=order).confirmed


def test_manage_py_has_every_command_with_the_project_s_store(shop, default):
    place_order(default, "ada")
    command = "from django.core.management import execute_from_command_line as run; import sys"

    def manage(*words: str) -> str:
        arguments = ["manage.py", "penstock", *words]
        return subprocess.run(
            [sys.executable, "-c", f"{command}; run({arguments!r})"],
            cwd=ROOT,
            env={**os.environ, **shop},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    assert "shop:confirm" in manage("find", "--json")
    assert "Start here" in manage("--help")
    manage("worker", "--drain", "--processes", "1")
    assert '"succeeded"' in manage("find", "state:succeeded", "--json")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["find", "state:failed"], ["find", "--app", "T", "state:failed"]),
        (["worker", "--drain"], ["worker", "T", "--drain"]),
        (["worker", "other:app"], ["worker", "other:app"]),
        (["find", "--url", "sqlite:///jobs.db"], ["find", "--url", "sqlite:///jobs.db"]),
        (["init"], ["init"]),
        ([], []),
    ],
)
def test_manage_py_names_the_app_where_the_command_takes_one(words, expected):
    from penstock.integrations.django.management.commands.penstock import TARGET, words_with_app

    assert words_with_app(words) == [TARGET if word == "T" else word for word in expected]


def test_migrate_makes_the_store(shop):
    import psycopg

    with psycopg.connect(shop["SHOP_POSTGRES"]) as connection:
        assert connection.execute("select to_regclass('penstock.job') is not null").fetchone() == (
            True,
        )


def test_settings_become_a_url(shop):
    from django.db import connections
    from django.test import override_settings

    from penstock.integrations.django import app, url_of

    assert "connect_timeout=5" in url_of("default")
    assert "pool" not in url_of("default")
    assert app.resolved_url.source == "the database default of the settings"
    with override_settings(PENSTOCK={"URL": "postgresql://elsewhere/shop"}):
        assert (app.resolved_url.url, app.alias) == ("postgresql://elsewhere/shop", None)
    with override_settings(PENSTOCK={"url": "x"}), pytest.raises(Refused, match="URL or DATABASE"):
        _ = app.resolved_url
    database = connections["default"].settings_dict
    before = dict(database)
    try:
        database.update(HOST="/run/a b", PORT="", USER="o'hara", PASSWORD="p@ss/w:rd +%")
        url = url_of("default")
        assert "host=%2Frun%2Fa%20b" in url or "host=/run/a%20b" in url
        assert "***" in app.describe()
        assert "w:rd" not in app.describe()
    finally:
        database.update(before)


def test_a_database_in_memory_is_refused_with_the_way_out(shop):
    from django.db import connections

    from penstock.integrations.django import url_of

    database = connections["file"].settings_dict
    before = database["NAME"]
    try:
        database["NAME"] = "file:memorydb_default?mode=memory&cache=shared"
        with pytest.raises(Refused, match=r"app\.testing"):
            url_of("file")
    finally:
        database["NAME"] = before


def test_states_are_those_of_any_app(default):
    from penstock.integrations.django import app
    from tests.integrations.shop.tasks import confirm

    handle = confirm.enqueue(1)
    assert handle.state() is State.READY
    assert app.handle(handle.id).cancel()


def test_tasks_in_djangos_own_words_are_jobs_in_the_same_transactions(default):
    from django.db import transaction
    from django_tasks import TaskResultStatus

    from penstock.integrations.django import app
    from tests.integrations.shop.tasks import greet

    with transaction.atomic():
        lost = greet.enqueue("eve")
        transaction.set_rollback(True)
    greeted = greet.using(priority=7).enqueue(customer="ada")
    refused = greet.enqueue("mallory")
    job = app.broker.get(greeted.id)
    assert (job.queue, job.priority, job.task) == ("mail", 7, greet.module_path)
    assert greeted.status == TaskResultStatus.READY
    Worker(app, drain=True).work()

    greeted.refresh()
    assert (greeted.status, greeted.return_value) == (TaskResultStatus.SUCCESSFUL, "hello ada")
    assert greeted.finished_at >= greeted.started_at
    failed = greet.get_result(refused.id)
    assert (failed.status, failed.kwargs) == (TaskResultStatus.FAILED, {"customer": "mallory"})
    assert failed.errors[0].exception_class is PermissionError
    with pytest.raises(Exception, match=lost.id):
        greet.get_result(lost.id)


def test_an_error_that_is_stored_has_nothing_imported(default, tmp_path, monkeypatch):
    """Who may write to the store may write any error: it names no module to load."""
    from penstock.integrations.django import app
    from tests.integrations.shop.tasks import complain

    (tmp_path / "laid_there.py").write_text("class Trap(Exception): ...")
    monkeypatch.syspath_prepend(tmp_path)
    sent = complain.enqueue("no")
    [job] = claim_for(app.broker, WorkerRow(id="stranger", tasks={complain.module_path: 1}))
    assert app.broker.settle([(job, failed("laid_there.Trap: of whoever wrote this"))]) == [True]

    [error] = complain.get_result(sent.id).errors
    with pytest.raises(ValueError, match="no exception of a module that is loaded"):
        error.exception_class  # noqa: B018  asking for it is what would import it
    assert "laid_there" not in sys.modules
    monkeypatch.setattr("tests.integrations.shop.tasks.Trap", KeyError, raising=False)
    path = "tests.integrations.shop.tasks.Trap"
    assert type(error)(exception_class_path=path, traceback="").exception_class is KeyError


def test_what_django_offers_and_penstock_says_otherwise_is_refused(shop):
    from django_tasks import task
    from django_tasks.exceptions import InvalidTaskError

    from tests.integrations.shop.tasks import greet

    with pytest.raises(Refused, match="current_job"):
        task(takes_context=True)(takes_context)
    with pytest.raises(InvalidTaskError, match="Queue"):
        greet.using(queue_name="elsewhere")


def takes_context(context: Any) -> None: ...


def test_the_settings_have_the_keys(shop, tmp_path):
    from django.test import override_settings

    from penstock.integrations.django import DjangoApp

    key, file = KeyRing.new_key(), tmp_path / "keys"
    file.write_text(key)
    file.chmod(0o600)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    for settings in ({"URL": url, "KEYS": [key]}, {"URL": url, "KEY_FILE": file}):
        with override_settings(PENSTOCK=settings):
            app = DjangoApp()

            @app.task(name="echo", secret=("text",), keep_secrets=60)
            def echo(text: str) -> str:
                return text

            handle = echo.enqueue("hunter2")
            stored = open_broker(url)
            assert b'"$sealed"' in stored.get(handle.id).body
            stored.close()
            Worker(app, drain=True).work()
            assert handle.result(timeout=5) == "hunter2"
            app.close()


def test_a_job_of_an_atomic_block_is_sealed(shop):
    """The job joins the block's transaction, and its arguments are encrypted all the same."""
    from django.db import transaction
    from django.test import override_settings

    from penstock.integrations.django import DjangoApp

    for alias in ("default", "file"):
        with override_settings(PENSTOCK={"DATABASE": alias, "KEYS": KeyRing(b"k" * 32)}):
            app = DjangoApp()

            @app.task(name="echo")
            def echo(text: str) -> str:
                return text

            with transaction.atomic(using=alias):
                handle = echo.enqueue("hunter2")
            assert b"hunter2" not in app.broker.store.get(handle.id).body
            assert b'"hunter2"' in app.broker.get(handle.id).body
            app.broker.act("delete", [handle.id])
            app.close()
