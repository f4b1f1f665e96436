"""The numbers that pages promise are those of the code.

Each line below is a piece of a page, put together from a constant. That the code does what the
constant says is tested where the constant is used.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.app.store_retry import STORE_SECONDS
from penstock.app.token_text import SHORTEST_TOKEN
from penstock.broker.checks import (
    AHEAD_SECONDS,
    MOST_BODY_BYTES,
    MOST_NAME_CHARACTERS,
    MOST_PRIORITY,
)
from penstock.broker.lake_mark import HOLD_SECONDS
from penstock.broker.settlement import LONGEST_LAPSE_DELAY
from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import LEASE_SECONDS
from penstock.broker.worker_lease import MOST_SPARED, MOST_SUSPECTS
from penstock.brokers.postgres import listening, store
from penstock.brokers.postgres.connection import CALL_SECONDS
from penstock.brokers.postgres.doctor_checks import server
from penstock.brokers.postgres.reading import _WAIT_SECONDS
from penstock.brokers.server_clock import FRESH_SECONDS
from penstock.brokers.sqlite.store import _OLDEST_SQLITE, _STARTING_SECONDS
from penstock.enqueue.json_faults import DEEPEST, LARGEST_INT
from penstock.enqueue.provisional import CLOSE_SECONDS
from penstock.enqueue.secrets import _SHORTEST
from penstock.job import CRASH_BUDGET
from penstock.run.describe_error import LONGEST_TRACEBACK
from penstock.run.error_text import LONGEST_HEADLINE
from penstock.run.other_release import MOST_TIMES
from penstock.schedules.timetable import _LAG_SECONDS
from penstock.web import connection, guard, live, wrong_tokens
from penstock.web.access import MOST_SESSIONS, SESSION_SECONDS
from penstock.worker import loop, outage_log, upkeep
from penstock.worker.claim_plan import START_SECONDS
from penstock.worker.supervisor import SILENCE_SECONDS
from tests.docs.promises import ROOT

DAY = 86400
COUNTED = {1 / 5: "a fifth of a", 1 / 2: "half a", 1: "a", 2: "two", 3: "third", 4: "four"}
COUNTED |= {10: "ten", 12: "twelve"}

GUARANTEES = [
    f"the lease ({LEASE_SECONDS:g} s)",
    (
        f"({store.PostgresStore.work_seconds:g} s for claims, settlements and renewals, "
        f"{CALL_SECONDS:g} s for nearly all others)"
    ),
    "log one line a minute" if outage_log._LOG_EVERY == 60 else "",
    f"retried for {STORE_SECONDS:g} s, plus the time of one call",
    f"the child is replaced after {SILENCE_SECONDS:g} s",
    f"alive that takes the task, at most {MOST_TIMES} times",
    f"The store remembers ids for {RETENTION_SECONDS / DAY:g} days",
    (
        f"at their next poll, within {COUNTED[listening.POLL_SECONDS]} seconds "
        f"(behind a pooler within {COUNTED[listening.DEAF_SECONDS]} second)"
    ),
    f"The {COUNTED[CRASH_BUDGET]} lapse ends it",
    f"twice as long each time, at most {LONGEST_LAPSE_DELAY:g} s",
    f"at most {MOST_SUSPECTS} of them, and the {COUNTED[MOST_SPARED]} time in a row",
    f"`pause` waits {_STARTING_SECONDS * 1000:g} ms for workers that have just checked",
    f"has not answered within {COUNTED[listening._ACKNOWLEDGE_SECONDS]} second",
    f"have not begun {COUNTED[START_SECONDS]} second after their claim are put back",
    f"at most every {listening._RULES_SECONDS * 1000:g} ms",
    f"within about {COUNTED[loop._CANCEL_SECONDS]} second",
    "when it connects and once a minute" if FRESH_SECONDS == 60 else "",
    f"right to within {COUNTED[CLOSE_SECONDS]} second",
    f"more than {AHEAD_SECONDS} s ahead of the store's clock is refused",
    f"within {COUNTED[_LAG_SECONDS]} second while one is idle",
    f"It waits {COUNTED[_WAIT_SECONDS]} second for such a transaction",
    f"kept for {HOLD_SECONDS / DAY:g} days beyond the retention",
    f"{MOST_BODY_BYTES // 1024} KiB each",
    f"| {DEEPEST} levels |",
    f"{LARGEST_INT.bit_length() + 1} bits; larger ones are refused",
    f"1 to {MOST_NAME_CHARACTERS} characters out of",
    f"| -{MOST_PRIORITY} to {MOST_PRIORITY} |",
    f"| ids are recognised for | {RETENTION_SECONDS / DAY:g} days, then refused |",
    f"does not have yet is kept for | {HOLD_SECONDS / DAY:g} days more",
    f"history and ended jobs are kept for | {RETENTION_SECONDS / DAY:g} days (`penstock worker` "
    + ("prunes once an hour)" if upkeep.PRUNE_EVERY == 3600 else ""),
    (
        f"its headline of at most {LONGEST_HEADLINE} characters, and the end of its traceback: "
        f"{LONGEST_TRACEBACK // 1024} KiB together"
    ),
    (
        f"SQLite older than {_OLDEST_SQLITE[0]}.{_OLDEST_SQLITE[1]}, "
        f"PostgreSQL older than {server.OLDEST}."
    ),
]
SECURITY = [
    f"values of fewer than {COUNTED[_SHORTEST]} characters",
    f"use it for {COUNTED[SESSION_SECONDS / 3600]} hours",
    f"continues for at most {COUNTED[live.LONGEST_SECONDS / 60]} minutes after its session ended",
    f"A token of fewer than {SHORTEST_TOKEN} characters",
    (
        f"must arrive completely within {connection.REQUEST_SECONDS:g} seconds, and a client must "
        f"read at least {connection.READ_BYTES // 1024} KiB of its answer in "
        f"{connection.READ_SECONDS:g} seconds"
    ),
    f"If all {connection.MOST_CONNECTIONS} connections are in use",
    (
        f"at most {guard.MOST_OF_A_LOGIN} requests at a time, {live.MOST_OF_A_LOGIN} of them live "
        f"streams; a login that starts a {MOST_SESSIONS + 1}st session"
    ),
    "After three within a minute" if wrong_tokens.FREE * wrong_tokens.WINDOW_SECONDS == 180 else "",
]
README = [
    f"otherwise within {LEASE_SECONDS + 2:g} s (lease + 2 s)" if upkeep.RECOVER_SECONDS < 2 else "",
    f"in order, kept {RETENTION_SECONDS / DAY:g} days",
    f"also after it has ended, for {RETENTION_SECONDS / DAY:g} days",
    f"no PostgreSQL ({server.OLDEST} or newer)",
    f"after the {COUNTED[CRASH_BUDGET]} time it is `failed`",
]
PIECES = [
    *(("docs/guarantees.md", piece) for piece in GUARANTEES),
    *(("SECURITY.md", piece) for piece in SECURITY),
    *(("README.md", piece) for piece in README),
]


def words_of(page: Path) -> str:
    text = re.sub(r"\s*<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(text.split())


@pytest.mark.parametrize(("page", "piece"), PIECES)
def test_a_number_on_a_page_is_that_of_the_code(page: str, piece: str) -> None:
    assert piece, "the constant has changed: the page and this line say something else"
    assert piece in words_of(ROOT / page)
