"""Checks of the options of tasks, jobs and schedules, each made once: where an option is given.

Names are stricter here than what a store keeps (`broker.checks`): they go into URLs, command lines
and code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from penstock.broker.checks import check_no_path
from penstock.broker.queue_options import FOREVER
from penstock.enqueue.json_faults import fault_in
from penstock.errors import Refused
from penstock.flows.flow import OnFailure
from penstock.job import Unique
from penstock.task.retry import Repeat, Strategy

S = TypeVar("S", bound=Strategy | None)

_LONGEST = FOREVER  # beyond it a time is a mistake, and no calendar can show it
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")


def check_identifier(what: str, name: object) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise Refused(
            f"{what} {name!r}: 1 to 200 characters out of letters, digits and _ . : / - are allowed"
        )
    return name


def check_task(what: str, name: object) -> str:
    """The name of a task: one that is no path."""
    name = check_identifier(what, name)
    check_no_path(what, name)
    return name


def check_short_text(what: str, text: object) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str) or not 0 < len(text) <= 500 or "\x00" in text:
        raise Refused(f"{what}={text!r}: a text of 1 to 500 characters")
    return text


def check_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    checked = check_texts("tags", tags)
    for name, value in checked.items():
        check_identifier("tag", name)
        check_short_text(f"tag {name}", value)
    return checked


def check_texts(what: str, texts: Mapping[str, str] | None) -> dict[str, str]:
    if texts is not None and not isinstance(texts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
        raise Refused(f'{what}={texts!r}: a dict of texts, as {what}={{"tenant": "a"}}')
    checked = dict(texts or {})
    for name, value in checked.items():
        if not isinstance(name, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
            raise Refused(f"{what}: {name!r}: {value!r}: both must be texts; write str(...)")
        if fault := fault_in(name, f"{what}: a name") or fault_in(value, f"{what}: {name}"):
            raise Refused(fault)
    return checked


def check_crash_budget(crashes: int | None) -> int | None:
    """The number of crashes that end a job, if it is one."""
    if crashes is None:
        return None
    if isinstance(crashes, bool) or not isinstance(crashes, int) or not 1 <= crashes <= 1000:  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
        raise Refused(f"crash_budget={crashes!r}: a number of crashes from 1 to 1000")
    return crashes


def check_priority(priority: object) -> int:
    if type(priority) is not int or not -100 <= priority <= 100:
        raise Refused(f"priority={priority!r}: a whole number from -100 to 100, higher goes first")
    return priority


def check_seconds(what: str, value: float | timedelta | None) -> float | None:
    """A span of time, in seconds."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]  as above
        raise Refused(f"{what}={value!r}: seconds as a number, or a timedelta")
    if not 0 <= seconds <= _LONGEST:
        raise Refused(f"{what}={value!r}: seconds, 0 or more, and at most a thousand years")
    return float(seconds)


def check_keep(keep: float | timedelta | str | None) -> float | None:
    """How long arguments and result stay, in seconds; "forever" is the longest time there is."""
    if isinstance(keep, str):
        if keep != "forever":
            raise Refused(f'keep={keep!r}: seconds as a number, a timedelta or "forever"')
        return FOREVER
    return check_seconds("keep", keep)


def check_timeout(timeout: float | timedelta | None) -> float | None:
    seconds = check_seconds("timeout", timeout)
    if seconds == 0:
        raise Refused(f"timeout={timeout!r}: more than 0 seconds; leave it out for no limit")
    return seconds


def check_moment(what: str, moment: datetime | None) -> float | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  as above
        raise Refused(f"{what}={moment!r}: a datetime; for a span of time use delay")
    if moment.tzinfo is None:
        raise Refused(
            f"{what}={moment!r}: has no time zone; write datetime(..., tzinfo=UTC) or .astimezone()"
        )
    return moment.timestamp()


def check_strategy(what: str, strategy: S) -> S:
    if strategy not in (None, "keep", "delete") and not isinstance(strategy, Repeat):
        raise Refused(f'{what}={strategy!r}: "keep", "delete" or Repeat(...)')
    return strategy


def check_on_failure(on_failure: object) -> OnFailure | None:
    if on_failure not in (None, "cancel", "continue"):
        raise Refused(f'on_failure={on_failure!r}: "cancel" or "continue"')
    return on_failure


def check_unique(
    key: str | None, until: str, seconds: float | None, *, replace: bool = False
) -> Unique | None:
    if key is None:
        if replace:
            raise Refused("replace=True is about the job under unique=...; give that, too")
        if seconds is not None or until != "ended":
            raise Refused(
                "unique_for and unique_until say how long unique=... holds; give that, too"
            )
        return None
    check_short_text("unique", key)
    if until not in ("started", "ended", "time"):
        raise Refused(f'unique_until={until!r}: "started", "ended" or "time"')
    if until == "time" and seconds is None:
        raise Refused('unique_until="time" needs unique_for=..., the seconds that it holds')
    if not isinstance(replace, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  as above
        raise Refused(f"replace={replace!r}: True or False")
    return Unique(key, until, seconds, replace)
