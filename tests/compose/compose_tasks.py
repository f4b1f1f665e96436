"""The tasks that flows are made of, in these tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock import App, current_job, use

app = App("memory:")


@dataclass
class Order:
    number: int
    lines: list[int] = field(default_factory=list)


class Renamed(msgspec.Struct, rename="camel"):
    first_number: int


@app.task(name="double")
def double(n: int) -> int:
    return 2 * n


@app.task(name="fails")
def fails(n: int) -> int:
    raise ValueError(n)


@app.task(name="add")
def add(a: int, b: int = 0, *more: int) -> int:
    return a + b + sum(more)


@app.task(name="gather")
def gather(*numbers: int) -> int:
    return sum(numbers)


@app.task(name="total")
def total(numbers: list[int], factor: int = 1) -> int:
    return sum(numbers) * factor


@app.task(name="ship")
def ship(order: Order, named: dict[str, list[int]] | None = None) -> int:
    return order.number + sum(order.lines) + sum(map(sum, (named or {}).values()))


@app.task(name="camel")
def camel(value: Renamed) -> int:
    return value.first_number


@app.task(name="perhaps")
def perhaps(n: int | None) -> str:
    return str(n)


@app.task(name="nothing")
def nothing(n: int) -> None: ...


@app.task(name="deletes", on_success="delete", keep=1)
def deletes(n: int) -> int:
    return n


@app.task(name="card")
def card() -> str:
    return "4242-4242"


@app.task(name="charge", secret=("number",))
def charge(number: str) -> None:
    raise RuntimeError(f"no money on {number}")


@app.task(name="later")
async def later(n: int) -> int:
    return n + 1


def make_client() -> str:
    return "client"


@app.task(name="client")
def with_client(n: int, client: str = use(make_client)) -> str:
    return f"{client}{n}"


@app.task(name="split")
def split(count: int, then: str = "") -> int:
    work = double.map(range(count))
    if then == "total":
        current_job().spawn(work, then=total.job(work.output, factor=100))
    elif then == "after":
        current_job().spawn([work, double.job(50)], then=nothing.job(1))
    else:
        current_job().spawn(work)
    if then == "fails":
        raise ValueError(then)
    return count


@app.task(name="spawns-badly")
def spawns_badly(jobs: str) -> None:
    current_job().spawn(jobs)  # pyright: ignore[reportArgumentType]
