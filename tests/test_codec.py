"""Arguments and results as JSON: what goes through, what is refused, and with which sentence."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import typing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from penstock.broker.checks import MOST_BODY_BYTES
from penstock.enqueue.codec import (
    ArgumentCodec,
    JobOptions,
    ResultCodec,
    RetryWire,
    add_options,
    decode_value,
    encode_value,
    read_body,
)
from penstock.errors import Refused
from penstock.task.retry import Repeat


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@dataclass
class Line:
    price: float
    count: int = 1


@dataclass
class Order:
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Address(msgspec.Struct):
    street: str
    since: date


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str
    year: int


class Customer(BaseModel):
    name: str
    born: date
    extra: dict[str, Any] = {}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    at: datetime
    amount: Decimal = Field(alias="theAmount")


@dataclass
class Parcel:
    customer: Customer
    weight: float


@dataclass
class Tree:
    children: list[Tree]


def send(to: str, order: Order) -> str:
    return to


def refusal(codec: ArgumentCodec, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(Refused) as caught:
        codec.encode(args, kwargs)
    return str(caught.value)


def there_and_back(annotation: Any, value: Any) -> Any:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    codec = ArgumentCodec(function)
    _, args, kwargs = codec.read(codec.encode((value,), {}))
    assert not kwargs
    return args[0]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, -(2**63)),
        (bool, True),
        (float, 0.1),
        (str, "héllo\x00\n"),
        (bytes, b"\x00\xff"),
        (Decimal, Decimal("1.10")),
        (UUID, UUID(int=7)),
        (datetime, datetime(2026, 11, 15, 8, 0, tzinfo=UTC)),
        (date, date(2026, 2, 28)),
        (timedelta, timedelta(days=1, microseconds=3)),
        (Colour, Colour.RED),
        (Level, Level.LOW),
        (Order, Order([Line(9.5), Line(1.0, 3)], "gift")),
        (Address, Address("Main", date(2020, 1, 1))),
        (Point, Point(1, 2)),
        (Movie, {"title": "Alien", "year": 1979}),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (tuple[int, str], (1, "a")),
        (dict[int, Decimal], {1: Decimal("0.1")}),
        (dict[UUID, list[Colour]], {UUID(int=1): [Colour.RED]}),
        (list[Order] | None, [Order()]),
        (Customer, Customer(name="Ada", born=date(1815, 12, 10))),
        (Strict, Strict(at=datetime(2026, 1, 1, tzinfo=UTC), theAmount=Decimal("1.5"))),
        (list[Customer], [Customer(name="Ada", born=date(1815, 12, 10))]),
        (dict[str, Customer], {"a": Customer(name="Ada", born=date(1815, 12, 10))}),
        (Parcel, Parcel(Customer(name="Ada", born=date(1815, 12, 10)), 2.5)),
        (Tree, Tree([Tree([]), Tree([])])),
        (typing.Literal["a", "b"], "b"),
        (Any, {"a": [1, 2.5, None, True, "x", {"b": []}]}),
        (object, [1, "a"]),
    ],
)
def test_a_value_comes_back_equal_under_its_annotation(annotation: Any, value: Any) -> None:
    back = there_and_back(annotation, value)

    assert back == value
    assert type(back) is type(value)


def test_without_an_annotation_a_tuple_comes_back_as_a_list() -> None:
    assert there_and_back(Any, ("a", (1, 2))) == ["a", [1, 2]]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_whatever_is_json_comes_back_equal_without_an_annotation(value: Any) -> None:
    assert there_and_back(Any, value) == value


@given(
    st.builds(Order, st.lists(st.builds(Line, st.floats(), st.integers())), st.none() | st.text())
)
def test_a_dataclass_comes_back_equal_or_is_refused_with_a_path(order: Order) -> None:
    storable = all(
        math.isfinite(line.price) and -(2**63) <= line.count < 2**63 for line in order.lines
    )

    if storable:
        assert there_and_back(Order, order) == order
    else:
        with pytest.raises(Refused, match=r"argument value\.lines\[\d+\]\.(price|count): "):
            there_and_back(Order, order)


@given(JSON, st.sampled_from([math.nan, math.inf, 2**63, b"x", {1}, date(2026, 1, 1), Colour.RED]))
def test_one_bad_value_anywhere_is_refused_without_an_annotation(value: Any, bad: Any) -> None:
    with pytest.raises(Refused, match=r"argument value"):
        there_and_back(Any, [value, {"deep": [value, bad]}])


def test_a_refusal_names_the_path_inside_the_value() -> None:
    lines = [Line(1.0), Line(2.0), Line(3.0), Line(math.nan)]

    assert refusal(ArgumentCodec(send), "ada", Order(lines)) == (
        "argument order.lines[3].price: NaN cannot be stored as JSON; send None or a text instead"
    )


def test_nan_is_refused_where_null_would_have_been_a_value() -> None:
    def measure(values: dict[str, float | None]) -> None: ...

    message = refusal(ArgumentCodec(measure), {"a b": -math.inf, "c": None})

    assert message.startswith("argument values['a b']: -inf cannot be stored")


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (str, "a\ud800", "argument value: character 1 is a lone surrogate"),
        (Any, {"\udfff": 1}, "argument value: a key: character 0 is a lone surrogate"),
        (int, 2**63, "argument value: an integer beyond 64 bits"),
        (list[int], [1, -(2**63) - 1], "argument value[1]: an integer beyond 64 bits"),
        (Any, [2**64], "argument value[0]: an integer beyond 64 bits"),
        (Any, {(1, 2): 3}, "argument value: the key (1, 2) cannot be stored as JSON"),
        (Any, {1: "a"}, "argument value: the key 1 would come back as text"),
        (Any, {"a": b"x"}, "argument value.a: bytes would come back as str; annotate"),
        (Any, date(2026, 1, 1), "argument value: date would come back as str; annotate"),
        (Any, Decimal(1), "argument value: Decimal would come back as str; annotate"),
        (Any, UUID(int=1), "argument value: UUID would come back as str; annotate"),
        (Any, Colour.RED, "argument value: Colour would come back as str; annotate"),
        (Any, Level.LOW, "argument value: Level would come back as int; annotate"),
        (Any, {1, 2}, "argument value: set would come back as list; annotate"),
        (Any, Line(1.0), "argument value: Line would come back as dict; annotate"),
        (
            Any,
            Address("x", date(2020, 1, 1)),
            "argument value: Address would come back as dict",
        ),
        (list[Any], [Line(1.0)], "argument value[0]: Line would come back as dict"),
        (Any, Customer(name="a", born=date(2000, 1, 1)), "argument value: Customer would come"),
        (
            Customer,
            Customer(name="a", born=date(2000, 1, 1), extra={"at": date(2000, 1, 1)}),
            "argument value.extra.at: date would come back as str",
        ),
        (Any, object(), "argument value: object cannot be stored as JSON"),
        (Any, [lambda: 1], "argument value[0]: function cannot be stored as JSON"),
    ],
)
def test_what_would_not_come_back_is_refused(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(Refused) as caught:
        there_and_back(annotation, value)

    assert str(caught.value).startswith(message)


def test_depth_is_limited_with_and_without_an_annotation() -> None:
    deep: Any = 1
    tree = Tree([])
    for _ in range(64):
        deep, tree = [deep], Tree([tree])

    assert there_and_back(Any, deep) == deep
    for annotation, value in ((Any, [deep]), (Tree, tree)):
        with pytest.raises(Refused, match="more than 64 levels deep"):
            there_and_back(annotation, value)


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)

    with pytest.raises(Refused, match="more than 64 levels deep"):
        there_and_back(Any, ring)


def test_too_large_a_call_is_refused_with_its_size_and_the_limit() -> None:
    def keep(text: str) -> None: ...

    message = refusal(ArgumentCodec(keep), "x" * MOST_BODY_BYTES)

    assert str(MOST_BODY_BYTES) in message
    assert f"{MOST_BODY_BYTES + 20} bytes" in message


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, Order()), {}, "to: Expected `str`, got `int`"),
        (
            ("a", {"lines": [{"price": "x"}]}),
            {},
            "order.lines[0].price: Expected `float`, got `str`",
        ),
        (("a",), {}, "missing a required argument: 'order'"),
        (("a", Order(), 3), {}, "too many positional arguments"),
        (("a", Order()), {"to": "b"}, "multiple values for argument 'to'"),
        (("a", Order()), {"cc": "b"}, "got an unexpected keyword argument 'cc'"),
    ],
)
def test_a_wrong_call_is_refused_with_the_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    expected = f"send(to: str, order: Order) -> str: {message}"

    assert refusal(ArgumentCodec(send), *args, **kwargs) == expected


def test_omitted_arguments_stay_omitted() -> None:
    def greet(name: str, greeting: str = "hello", *, times: int = 1) -> None: ...

    codec = ArgumentCodec(greet)

    assert codec.encode(("ada",), {}) == b'{"args":{"name":"ada"}}'
    assert codec.read(codec.encode(("ada",), {}))[1:] == ((), {"name": "ada"})
    assert codec.read(codec.encode(("ada",), {"times": 2}))[1:] == ((), {"name": "ada", "times": 2})
    assert codec.decode(b'{"name":"ada","greeting":"hi"}') == (
        (),
        {"name": "ada", "greeting": "hi"},
    )


def test_every_kind_of_parameter_is_called_as_it_was() -> None:
    def function(a: int, /, b: int, *rest: float, c: str = "c", **more: bool) -> Any:
        return a, b, rest, c, more

    codec = ArgumentCodec(function)
    for args, kwargs in [
        ((1, 2), {}),
        ((1,), {"b": 2}),
        ((1, 2, 3.5, 4.5), {"c": "x", "d": True}),
        ((1, 2), {"rest": True, "more": False}),
    ]:
        _, called, named = codec.read(codec.encode(args, kwargs))
        assert function(*called, **named) == function(*args, **kwargs)

    assert "a: int, /, b: int, *rest: float, c: str = 'c', **more: bool" in codec.text
    assert "missing a required argument" in refusal(
        codec, a=1, b=2
    ) or "positional only" in refusal(codec, a=1, b=2)
    assert "rest[0]: Expected `float`, got `str`" in refusal(codec, 1, 2, "x")
    assert "Expected `bool`, got `int`" in refusal(codec, 1, 2, d=3)


def test_resources_are_left_out_and_cannot_be_sent() -> None:
    def function(a: int, client: object = None, b: int = 2) -> None: ...

    codec = ArgumentCodec(function, leave_out=("client",))

    assert codec.encode((1,), {"b": 3}) == b'{"args":{"a":1,"b":3}}'
    assert codec.text == "function(a: int, b: int = 2) -> None"
    for args, kwargs in [((1, object()), {}), ((1,), {"client": None})]:
        assert "client is a resource, made where the job runs" in refusal(codec, *args, **kwargs)


def test_many_rows_are_encoded_and_a_bad_one_is_named() -> None:
    codec = ArgumentCodec(lambda n, m=1: None)

    assert codec.encode_many([(1,), {"n": 2, "m": 3}]) == [
        b'{"args":{"n":1}}',
        b'{"args":{"n":2,"m":3}}',
    ]
    with pytest.raises(Refused, match=r"^row 11: .*missing a required argument: 'n'"):
        codec.encode_many([(1,), {}], first=10)
    with pytest.raises(Refused, match=r"row 0: .*: a row is a tuple or a dict"):
        codec.encode_many(["ab"])


def test_an_annotation_that_cannot_be_found_is_told_with_its_parameter() -> None:
    def function(order: Missing) -> None: ...  # noqa: F821

    with pytest.raises(
        Refused, match="the annotation 'Missing' of parameter order cannot be resolved"
    ):
        ArgumentCodec(function)


def test_an_annotation_of_something_that_is_not_stored_need_not_be_found() -> None:
    def function(n: int, client: Missing = None) -> Missing: ...  # noqa: F821

    codec = ArgumentCodec(function, leave_out=("client",))

    assert codec.read(codec.encode((1,), {}))[1:] == ((1,), {})


def test_local_names_in_annotations_can_be_given() -> None:
    @dataclass
    class Local:
        n: int

    def function(local: Local) -> None: ...

    codec = ArgumentCodec(function, names={"Local": Local})

    assert codec.read(codec.encode((Local(3),), {}))[1] == (Local(3),)


def test_an_annotation_without_a_json_form_is_refused_with_the_way_out() -> None:
    def function(go: typing.Callable[[], int]) -> None: ...

    with pytest.raises(Refused, match=r"parameter go cannot be stored as JSON: .* use\(\.\.\.\)"):
        ArgumentCodec(function)


def test_a_body_that_cannot_be_read_is_refused_with_the_signature() -> None:
    codec = ArgumentCodec(send)

    for body in (
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"args":{}}',
        b'{"args":{"to":"a","order":{},"x":1}}',
    ):
        with pytest.raises(Refused, match=r"^send\(to: str, order: Order\) -> str: "):
            codec.read(body)


def test_options_travel_in_the_same_object() -> None:
    options = JobOptions(
        headers={"tenant": "a"},
        timeout=3.0,
        retry=RetryWire(limit=1),
        on_error=Repeat(limit=2, delay=1.0),
        on_success="delete",
        secret=("to",),
    )
    codec = ArgumentCodec(send)
    body = add_options(codec.encode(("ada", Order()), {}), msgspec.json.encode(options))

    read, args, _ = codec.read(body)

    assert args == ("ada", Order())
    for each in (read, read_body(body)):
        assert each.headers == {"tenant": "a"}
        assert each.timeout == 3.0
        assert each.retry == RetryWire(limit=1)
        assert each.on_error == Repeat(limit=2, delay=1.0)
        assert each.on_success == "delete"
        assert each.on_timeout is None
        assert each.secret == ("to",)


def test_no_options_add_nothing() -> None:
    assert add_options(b'{"args":{}}', msgspec.json.encode(JobOptions())) == b'{"args":{}}'


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (str, 1, "result: Expected `str`, got `int`"),
        (str, None, "result: Expected `str`, got `null`"),
        (list[float], [1.0, math.nan], "result[1]: NaN cannot be stored"),
        (Any, [object()], "result[0]: object cannot be stored"),
        (Any, {"a": Line(1.0)}, "result.a: Line would come back as dict"),
        (dict[str, int], {"a": 2**70}, "result.a: an integer beyond 64 bits"),
        (Any, "x" * MOST_BODY_BYTES, "result: "),
    ],
)
def test_a_result_is_refused_in_the_same_words(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(Refused) as caught:
        ResultCodec(annotation).encode(value)

    assert str(caught.value).startswith(message)


def test_results_come_back_typed_and_know_whether_they_may_be_none() -> None:
    order = Order([Line(1.5)])

    assert ResultCodec(Order).decode(ResultCodec(Order).encode(order)) == order
    assert not ResultCodec(Order).may_be_none
    assert ResultCodec(None).may_be_none
    assert ResultCodec().may_be_none
    with pytest.raises(Refused, match="result: "):
        ResultCodec(int).decode(b'"x"')


def test_a_value_for_a_reader_with_a_type_may_be_anything_that_json_holds() -> None:
    encoded = encode_value(Order([Line(1.5)]), "snapshot")

    assert decode_value(encoded, Order) == Order([Line(1.5)])
    assert decode_value(encoded) == dataclasses.asdict(Order([Line(1.5)]))
    with pytest.raises(Refused, match=r"snapshot\.lines\[0\]\.price: NaN"):
        encode_value(Order([Line(math.nan)]), "snapshot")


def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    code = (
        "import sys, penstock\n"
        "app = penstock.App('memory:')\n"
        "from penstock.enqueue.codec import ArgumentCodec\n"
        "ArgumentCodec(lambda n: n).encode((1,), {})\n"
        "heavy = {'asyncio', 'pydantic', 'sqlalchemy', 'typer', 'rich', 'sqlite3'}\n"
        "heavy &= sys.modules.keys()\n"
        "sys.exit(', '.join(heavy) or 0)"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
