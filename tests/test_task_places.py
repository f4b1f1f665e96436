"""Tasks of one name in several places: what is told of the live workers."""

from __future__ import annotations

from penstock import App
from penstock.brokers.memory import MemoryBroker
from penstock.operate.task_places import defined_twice
from penstock.testing.conformance.factories import a_worker


def test_a_task_that_two_programs_define_is_named_with_both_places():
    shop = a_worker("w-1", group="shop-1", tasks={"send": 1}, places={"send": "shop:send"})
    crm = a_worker("w-2", tasks={"send": 2}, places={"send": "crm:mail"}, started_at=1.0)

    [found] = defined_twice([crm, shop])

    assert str(found) == (
        "the task send is shop:send (worker shop-1) and crm:mail (worker w-2): each of them runs "
        "jobs of the other"
    )


def test_workers_of_one_program_and_of_programs_with_names_are_fine():
    named = {"tasks": {"send": 1}, "places": {"send": "shop:send"}}
    rows = [
        a_worker("w-1", **named),
        a_worker("w-2", **named),
        a_worker("w-3", app="crm", tasks={"send": 1}, places={"send": "crm:mail"}),
        a_worker("w-4", alive=False, tasks={"send": 1}, places={"send": "old:send"}),
        a_worker("receiver/lab/1", tasks={"send": 1}),
    ]

    assert defined_twice(rows) == []


def test_a_task_that_keeps_the_name_of_where_it_was_is_in_another_place():
    before = a_worker("w-1", tasks={"shop:send": 1})
    after = a_worker("w-2", tasks={"shop:send": 1}, places={"shop:send": "shop.mail:send"})

    [found] = defined_twice([before, after])

    assert list(found.workers) == ["shop:send", "shop.mail:send"]


def test_an_app_says_where_its_tasks_are():
    app = App(broker=MemoryBroker())

    @app.task
    def plain() -> None: ...

    @app.task(name="other", aliases=["once"])
    def named() -> None: ...

    place = plain.name.replace("plain", "named")
    assert app.task_places == {"other": place, "once": place}
    app.close()
