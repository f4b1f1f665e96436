"""Resources: what tasks need and jobs never carry, made once per process.

    def send(to: str, client: Client = use(make_client)) -> None: ...

A factory returns the value, or yields it (a generator, or a function under `@contextmanager`) and
is gone on with when the process drains. Asynchronous ones serve `async def` tasks: they are opened
and closed on the loop that asked first. Closing goes backwards, so that what was built on something
is closed before it.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from penstock.errors import Refused

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("penstock")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CLOSE_SECONDS = 10.0


class _Managed(Protocol[T_co]):
    """What a function under `@contextmanager` returns; not just any value with an __enter__."""

    @property
    def gen(self) -> Generator[T_co, Any, Any]: ...


class _ManagedAsync(Protocol[T_co]):
    @property
    def gen(self) -> AsyncGenerator[T_co, Any]: ...


class Resource:
    """Stands as the default of a parameter that is filled in where the task runs."""

    __slots__ = ("factory",)

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory

    def __repr__(self) -> str:
        return f"use({getattr(self.factory, '__name__', self.factory)})"


@overload
def use(factory: Callable[[], _Managed[T]]) -> T: ...
@overload
def use(factory: Callable[[], _ManagedAsync[T]]) -> T: ...
@overload
def use(factory: Callable[[], Generator[T, Any, Any]]) -> T: ...
@overload
def use(factory: Callable[[], AsyncGenerator[T, Any]]) -> T: ...
@overload
def use(factory: Callable[[], Awaitable[T]]) -> T: ...
@overload
def use(factory: Callable[[], T]) -> T: ...
def use(factory: Callable[[], Any]) -> Any:
    """As the default of a task's parameter: what the factory makes, once per process."""
    if not callable(factory):
        raise Refused(f"use({factory!r}): give it the function that makes the resource")
    return Resource(factory)


def resources_of(function: Callable[..., Any]) -> dict[str, Resource]:
    """The parameters of a function that are resources."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if isinstance(each.default, Resource)}


class _Opened:
    """One factory's value, and how to close it. `loop` is None for what is not asynchronous."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.lock = threading.Lock()
        self.made = False
        self.value: Any = None
        self.closing: AbstractContextManager[Any] | AsyncExitStack | None = None


class Resources:
    """The resources of one process: opened on first use, closed in reverse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[Any, _Opened] = {}
        self._order: list[_Opened] = []
        self._pending: dict[Any, asyncio.Task[Any]] = {}
        self._replaced: dict[Callable[[], Any], Any] = {}

    def fill(self, parameters: Mapping[str, Resource]) -> dict[str, Any]:
        """A value for each of these parameters of a plain function."""
        return {name: self.open(resource.factory) for name, resource in parameters.items()}

    async def fill_async(self, parameters: Mapping[str, Resource]) -> dict[str, Any]:
        """A value for each of these parameters of an `async def` function."""
        return {name: await self.open_async(each.factory) for name, each in parameters.items()}

    def open(self, factory: Callable[[], Any]) -> Any:
        """The factory's value; made now if it was not made before. Safe between threads."""
        if factory in self._replaced:
            return self._replaced[factory]
        with self._lock:
            opened = self._opened.setdefault(factory, _Opened(None))
        if opened.made:
            return opened.value
        with opened.lock:  # one per factory: a slow one holds up nobody else
            if not opened.made:
                made = (
                    contextmanager(factory)() if inspect.isgeneratorfunction(factory) else factory()
                )
                if _asynchronous(made):
                    raise Refused(
                        f"{Resource(factory)!r} is asynchronous, and the task is not:"
                        " make the task `async def`, or the factory a plain function"
                    )
                if _generated(made):
                    opened.closing = cast("AbstractContextManager[Any]", made)
                    made = opened.closing.__enter__()
                self._keep(opened, made)
        return opened.value

    async def open_async(self, factory: Callable[[], Any]) -> Any:
        """As `open`, on the running loop; asynchronous factories are awaited."""
        import asyncio

        if factory in self._replaced:
            return self._replaced[factory]
        if not _makes_asynchronous(factory):
            return self.open(factory)
        loop = asyncio.get_running_loop()
        key = (factory, loop)
        if key in self._opened:
            return self._opened[key].value
        if key not in self._pending:
            self._pending[key] = asyncio.create_task(self._make_async(key, factory, loop))
        # Shielded: a job that is cancelled while it waits must not take it from the others.
        return await asyncio.shield(self._pending[key])

    async def _make_async(
        self, key: Any, factory: Callable[[], Any], loop: asyncio.AbstractEventLoop
    ) -> Any:
        try:
            opened = _Opened(loop)
            made = (
                asynccontextmanager(factory)() if inspect.isasyncgenfunction(factory) else factory()
            )
            if inspect.isawaitable(made):
                made = await made
            elif _generated(made):
                opened.closing = AsyncExitStack()
                made = await opened.closing.enter_async_context(
                    cast("AbstractAsyncContextManager[Any]", made)
                )
            with self._lock:
                self._opened[key] = opened
            self._keep(opened, made)
            return made
        finally:
            del self._pending[key]

    def _keep(self, opened: _Opened, value: Any) -> None:
        opened.value = value
        opened.made = True
        with self._lock:
            self._order.append(opened)

    def close(self) -> None:
        """Close everything, last opened first. What fails is logged, and the rest is closed."""
        with self._lock:
            order, self._order, self._opened = self._order, [], {}
        for opened in reversed(order):
            try:
                _close(opened)
            except Exception:
                logger.exception("a resource could not be closed")

    def emptied(self) -> Resources:
        """The same replacements, nothing opened: what a forked process starts with."""
        resources = Resources()
        resources._replaced = self._replaced
        return resources

    @contextmanager
    def replace(self, factory: Callable[[], Any], value: Any) -> Generator[None]:
        """Hand out `value` instead of what the factory makes, for tests."""
        before = dict(self._replaced)
        self._replaced = {**before, factory: value}
        try:
            yield
        finally:
            self._replaced = before


def _generated(made: Any) -> bool:
    return isinstance(made, (AbstractContextManager, AbstractAsyncContextManager)) and hasattr(
        cast("Any", made), "gen"
    )


def _asynchronous(made: Any) -> bool:
    if inspect.iscoroutine(made):
        made.close()  # it will not be awaited, and should not complain about it
        return True
    return inspect.isasyncgen(made) or (
        _generated(made) and isinstance(made, AbstractAsyncContextManager)
    )


def _makes_asynchronous(factory: Callable[[], Any]) -> bool:
    inner = inspect.unwrap(factory)
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def _close(opened: _Opened) -> None:
    closing, loop = opened.closing, opened.loop
    if isinstance(closing, AsyncExitStack):
        if loop is None or loop.is_closed():
            logger.warning("a resource stays open: the event loop that it lived on has ended")
        elif loop.is_running():
            import asyncio

            asyncio.run_coroutine_threadsafe(closing.aclose(), loop).result(CLOSE_SECONDS)
        else:
            loop.run_until_complete(closing.aclose())
    elif closing is not None:
        closing.__exit__(None, None, None)
