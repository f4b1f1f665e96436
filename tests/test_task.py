"""Tasks: their names, their options, and what can be made one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import App, Refused, use
from penstock.brokers.memory import MemoryBroker
from penstock.job import State
from penstock.task import option_types
from penstock.testing.conformance.factories import NO_PATHS, PATHS


@pytest.fixture
def app(memory_broker: MemoryBroker) -> App:
    return App(broker=memory_broker)


def test_a_task_is_still_the_function(app: App) -> None:
    @app.task
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert double(4) == 8
    assert double.__doc__ == "Twice as much."
    assert double.__name__ == "double"
    assert double.signature_text == "double(n: int) -> int"


def test_its_name_is_the_module_and_the_function(app: App) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    assert double.name == f"{__name__}:test_its_name_is_the_module_and_the_function.double"
    assert app.task_named(double.name) is double


@pytest.mark.parametrize("how", ["script", "module", "package"])
def test_the_script_being_run_goes_by_its_module_name(tmp_path: Path, how: str) -> None:
    code = (
        "from penstock import App\n"
        "app = App('memory:')\n"
        "@app.task\n"
        "def send(): ...\n"
        "print(send.name)\n"
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "__main__.py").write_text(code)
    (tmp_path / "shop" / "tasks.py").write_text(code)
    arguments, expected = {
        "script": (["shop/tasks.py"], "tasks:send"),
        "module": (["-m", "shop.tasks"], "shop.tasks:send"),
        "package": (["-m", "shop"], "shop:send"),
    }[how]

    printed = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout

    assert printed.strip() == expected


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 201, "a\n"])
def test_a_name_that_cannot_be_typed_is_refused(app: App, name: str) -> None:
    with pytest.raises(Refused, match="1 to 200 characters out of letters, digits"):
        app.task(name=name or " ")(lambda: None)


@pytest.mark.parametrize("name", ["a b", "é", "x" * 201, "a\n"])
def test_so_is_one_of_a_queue_or_a_tag(app: App, name: str) -> None:
    @app.task(name="send")
    def send() -> None: ...

    options: list[dict[str, Any]] = [{"queue": name}, {"tags": {name: "a"}}]
    for each in options:
        with pytest.raises(Refused, match="1 to 200 characters out of letters, digits"):
            send.options(**each).job()
    send.options(queue="x" * 200, tags={"_.:/-09azAZ": "a"}).job()


@pytest.mark.parametrize("name", PATHS)
def test_a_name_that_is_a_path_is_refused(app: App, name: str) -> None:
    def send() -> None: ...

    ways: list[Any] = [app.task(name=name), app.task(aliases=[name]), app.declare(name)]
    for way in ways:
        with pytest.raises(Refused, match="is a path"):
            way(send)
    assert app.tasks == {}


@pytest.mark.parametrize("name", NO_PATHS)
def test_a_name_with_a_slash_or_a_suffix_elsewhere_is_taken(app: App, name: str) -> None:
    @app.task(name=name)
    def send() -> None: ...

    assert app.task_named(name) is send


def test_two_tasks_of_one_name_are_refused_and_a_reload_is_not(app: App) -> None:
    def make(module: str) -> Any:
        def send() -> None: ...

        send.__module__ = module
        return send

    app.task(name="mail:send", aliases=("mail:post",))(make("shop.mail"))
    again = app.task(name="mail:send")(make("shop.mail"))

    assert app.task_named("mail:send") is again
    for options in (
        {"name": "mail:send"},
        {"name": "x", "aliases": ("mail:send",)},
        {"name": "mail:post"},
    ):
        with pytest.raises(
            Refused, match=r"two tasks are called mail:.* give one of them another name"
        ):
            app.task(**options)(make("shop.other"))


def test_known_tasks_are_names_and_aliases_with_their_version(app: App) -> None:
    app.task(name="mail:send", version=3, aliases=("mail:post",))(lambda: None)
    app.declare("media:resize")(lambda: None)

    assert app.known_tasks() == {"mail:send": 3, "mail:post": 3}
    assert app.task_named("mail:post") is app.task_named("mail:send")
    assert app.task_named("nobody") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "a b"}, "queue 'a b'"),
        ({"priority": 101}, "priority=101: a whole number from -100 to 100"),
        ({"priority": True}, "priority=True"),
        ({"retry": 3}, r"retry=3: write Retry\(limit=3"),
        ({"timeout": -1}, "timeout=-1: seconds, 0 or more"),
        ({"timeout": 0}, "timeout=0: more than 0 seconds"),
        ({"tags": ["a"]}, r"tags=\['a'\]: a dict of texts"),
        ({"tags": {"a b": "c"}}, "tag 'a b': 1 to 200 characters"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": "1m"}, "timeout='1m': seconds as a number, or a timedelta"),
        ({"mode": "fork"}, 'mode=\'fork\': "thread" or "process"'),
        ({"version": 0}, "version=0: a whole number from 1 up"),
        ({"aliases": "mail:post"}, r'aliases=\("mail:post",\)'),
        ({"search": ("cc",)}, r"search='cc' names no argument of .*to: str"),
        ({"secret": ("client",)}, "secret='client' names no argument"),
        ({"search": ("to.name",), "secret": ("to",)}, "search='to.name' is of a secret argument"),
        ({"on_error": "forget"}, r'on_error=\'forget\': "keep", "delete" or Repeat'),
        ({"tags": {"a": 1}}, "tags: 'a': 1: both must be texts"),
    ],
)
def test_a_wrong_option_of_a_task_is_refused(app: App, options: Any, message: str) -> None:
    def send(to: str, client: object = use(object)) -> None: ...

    with pytest.raises(Refused, match=message):
        app.task(**options)(send)


def test_an_async_function_is_async_by_itself(app: App) -> None:
    async def send() -> None: ...

    assert app.task(send).mode == "async"
    with pytest.raises(Refused, match="an `async def` runs on the event loop"):
        app.task(mode="process")(send)


def test_something_else_than_a_function_is_refused(app: App) -> None:
    with pytest.raises(Refused, match="a task is made of a function"):
        app.task(Shop)


def test_a_task_inside_a_function_sees_local_classes(app: App) -> None:
    @dataclass
    class Local:
        n: int

    @app.task
    def send(local: Local) -> Local:
        return local

    @app.task(queue="other")
    def resend(local: Local) -> Local:
        return local

    for task in (send, resend):
        body = task.job(Local(3)).body
        assert task.codec.read(body)[1] == (Local(3),)
        assert task.results.decode(b'{"n":4}') == Local(4)


def test_queues_are_registered_once(app: App) -> None:
    assert app.queue("mail") == "mail"
    assert app.queue("mail", relaxed=False) == "mail"
    with pytest.raises(Refused, match="registered with"):
        app.queue("mail", relaxed=True)
    app.queue("media", fair=True)
    with pytest.raises(Refused, match="with order=fair, and now with order=skip"):
        app.queue("media", ordered="skip")
    with pytest.raises(Refused, match="ordered='fifo' is not known: write \"wait\""):
        app.queue("films", ordered="fifo")  # pyright: ignore[reportArgumentType]


def test_the_broker_hears_which_queues_are_relaxed(app: App) -> None:
    app.queue("clicks", relaxed=True)

    assert app.broker.traits.relaxed == {"clicks"}

    app.queue("views", relaxed=True)

    assert app.broker.traits.relaxed == {"clicks", "views"}


def test_a_url_and_a_broker_are_one_too_many(memory_broker: MemoryBroker) -> None:
    with pytest.raises(Refused, match="give one of them"):
        App("memory:", broker=memory_broker)


class Shop:
    def order(self) -> None: ...

    @staticmethod
    def stock() -> None: ...


def rows() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Shop.order, "Shop.order: a method needs its object"),
        (Shop.__dict__["stock"], "Shop.stock: write @staticmethod above @app.task"),
        (rows, "rows: it yields, and a job has one result"),
        (lambda: None, "a lambda has no name"),
        (print, "print: a task is made of a function"),
    ],
)
def test_what_no_worker_could_call_is_refused(app: App, function: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        app.task(function)


def test_a_static_method_is_a_task(app: App) -> None:
    assert app.task(Shop.stock).enqueue().state() is State.READY


def test_a_handle_of_what_is_no_id_is_refused(app: App) -> None:
    with pytest.raises(Refused, match="5 is not a job id"):
        app.handle(cast("str", 5))


# Options, in one place


def test_a_keyword_that_is_no_option_is_refused_by_name_wherever_options_are_given(
    app: App,
) -> None:
    @app.task
    def send(to: str) -> None: ...

    anything = cast("Any", app)
    calls = {
        "@app.task(que=...)": lambda: anything.task(que="mail"),
        "@app.batch_task(que=...)": lambda: anything.batch_task(size=3, que="mail"),
        "@app.declare(que=...)": lambda: anything.declare("mail:send", que="mail"),
        "options(que=...)": lambda: cast("Any", send).options(que="mail"),
    }
    for what, call in calls.items():
        sentence = f"{what}: there is no such option; did you mean queue?"
        with pytest.raises(TypeError, match=re.escape(sentence)):
            call()
    for what, call in {
        "@app.schedule(zones=...)": lambda: anything.schedule("@daily", zones="UTC"),
        "app.schedules.put(zones=...)": lambda: anything.schedules.put("a", send, zones="UTC"),
    }.items():
        sentence = f"{what}: there is no such option; did you mean zone?"
        with pytest.raises(TypeError, match=re.escape(sentence)):
            call()


def test_a_keyword_that_is_near_no_option_is_answered_with_all_of_them(app: App) -> None:
    options = r"there are app, detached, keep_secrets, priority, queue, .*, version"
    with pytest.raises(TypeError, match=options):
        cast("Any", app).declare("mail:send", countdown=3)


def test_what_only_penstock_itself_says_of_a_task_is_no_option(app: App) -> None:
    for name in ("declared", "names", "batch", "app"):
        with pytest.raises(TypeError, match="there is no such option"):
            cast("Any", app).task(**{name: True})


def test_every_option_has_its_line_and_stands_in_the_reference() -> None:
    kinds = [
        node
        for node in ast.parse(Path(option_types.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    fields = [
        (each.target.id, following)
        for kind in kinds
        for each, following in zip(kind.body, [*kind.body[1:], None], strict=True)
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    docs = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
    rows = [line.split("|")[1] for line in docs.read_text().splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert len(fields) > 35
    assert [
        name
        for name, following in fields
        if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
    ] == []
    assert {name for name, _ in fields} <= listed
    names = [name for name, _ in fields]
    # `at` of a job and of a schedule are two options, as is `zone` of a schedule and of a dataset.
    assert sorted(name for name in set(names) if names.count(name) > 1) == ["at", "zone"]
