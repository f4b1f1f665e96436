"""What becomes of an attempt that raised, ran out of time, or succeeded: pure decisions.

`Retry` answers an exception: again, how much later, how often. A strategy answers what is left:
`"keep"` (a failed job stays, and can be retried; a result stays readable), `"delete"`, or
`Repeat(...)`: run it again, up to a limit, then something else.

    Dark's queue        retry=Retry(limit=2, delay=300, then="delete")
    haskell-bee         on_success="delete", on_timeout=Repeat(limit=2, then="keep")
    a periodic task     on_success=Repeat(delay=4), on_error=Repeat(delay=4)
"""

from __future__ import annotations

import random
from typing import Any, Literal, cast

import msgspec

from penstock.errors import Refused


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """When an exception leads to another attempt.

    `limit` counts retries: 2 retries mean that the third failure ends it; None is for ever. The
    k-th retry waits `delay * factor ** (k - 1)` seconds, spread by up to `jitter` of itself in both
    directions, and then at least `min` and at most `max`. Only exceptions in `on` are retried,
    those in `never` are not.
    `then` is what happens when no retry is left: "fail" (the job is kept) or "delete".
    """

    limit: int | None = 3
    delay: float = 10.0
    factor: float = 1.0
    jitter: float = 0.0
    min: float = 0.0
    max: float = 3600.0
    on: tuple[type[BaseException], ...] = (Exception,)
    never: tuple[type[BaseException], ...] = ()
    then: Literal["fail", "delete"] = "fail"

    def __post_init__(self) -> None:
        for name in ("delay", "factor", "jitter", "min", "max"):
            _check_number(f"Retry({name}", getattr(self, name))
        if self.min > self.max:
            raise Refused(f"Retry(min={self.min:g}, max={self.max:g}): min is at most max")
        _check_limit("Retry", self.limit)
        for name in ("on", "never"):
            _check_classes(name, getattr(self, name))
        _check_then("Retry", self.then, "fail")

    def delay_before(self, retry: int, spread: float | None = None) -> float:
        """Seconds to wait before the k-th retry; `spread` in -1..1 replaces the random one."""
        try:
            delay = self._bounded(self.delay * self.factor ** (retry - 1))
        except OverflowError:
            delay = self.max
        spread = random.uniform(-1, 1) if spread is None else spread  # noqa: S311  not a secret
        return self._bounded(delay * (1 + self.jitter * spread))

    def _bounded(self, delay: float) -> float:
        return max(self.min, min(delay, self.max))

    def allows(self, error: BaseException, failures: int) -> bool:
        """Whether the job may run again after this error; `failures` counts this one too."""
        return (
            isinstance(error, self.on)
            and not isinstance(error, self.never)
            and (self.limit is None or failures <= self.limit)
        )


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """Run the job again, `limit` times (None: for ever), then do what `then` says."""

    limit: int | None = None
    delay: float = 0.0
    then: Literal["keep", "delete"] = "keep"

    def __post_init__(self) -> None:
        _check_number("Repeat(delay", self.delay)
        _check_limit("Repeat", self.limit)
        _check_then("Repeat", self.then, "keep")


def _check_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise Refused(f"{what}={value!r}): a number, 0 or more")


def _check_limit(what: str, limit: object) -> None:
    if limit is not None and (type(limit) is not int or limit < 0):
        raise Refused(f"{what}(limit={limit!r}): a whole number, 0 or more, or None for ever")


def _check_classes(name: str, given: object) -> None:
    classes = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else (given,)
    if not all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
        raise Refused(
            f"Retry({name}={given!r}): a tuple of exception classes; write {name}=(OSError,)"
        )


def _check_then(what: str, then: object, other: str) -> None:
    if then not in (other, "delete"):
        raise Refused(f'{what}(then={then!r}): "{other}" or "delete"')


Strategy = Literal["keep", "delete"] | Repeat
NO_RETRY = Retry(limit=0)
