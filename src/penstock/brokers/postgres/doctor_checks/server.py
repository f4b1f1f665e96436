"""The server: version, settings, whether it can be written to, and connections left."""

from __future__ import annotations

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.doctor_checks import CheckContext, Findings
from penstock.brokers.postgres.statements import sql

OLDEST = 14
CONNECTIONS_PER_WORKER = 4  # one to listen, three at most for its calls
_NEARLY_FULL = 0.9
_ISOLATION = "read committed"

# Settings that must be on, and what happens otherwise.
_MUST_BE_ON = {
    "fsync": "a crash of the machine may lose every job, and the database with them",
    "full_page_writes": "a crash of the machine may leave torn pages behind",
    "synchronous_commit": "a crash of the server loses jobs that were accepted",
    "autovacuum": "dead rows are never removed, and every query gets slower",
    "track_counts": "autovacuum never runs: it goes by these counts",
}


def server(context: CheckContext) -> Findings:
    """Version, standby and settings."""
    yield from version(context.connection.info.server_version)
    if context.row(sql.doctor_standby)["standby"]:
        yield Trouble(
            "it is a standby, which is read-only: no job can be enqueued, claimed or settled",
            "name the primary with --url, for example with target_session_attrs=read-write",
            name="server",
        )
    settings = {row["name"]: row["setting"] for row in context.rows(sql.doctor_settings)}
    for name, harm in _MUST_BE_ON.items():
        if settings.get(name) == "off":
            yield Trouble(
                f"{name} is off: {harm}",
                f"set {name} = on, for the server, the database and this login",
            )
    if settings.get("default_transaction_read_only") == "on":
        yield Trouble(
            "default_transaction_read_only is on for this login or database: no job can be "
            "enqueued, claimed or settled",
            f"alter database {context.connection.info.dbname} reset default_transaction_read_only; "
            "the same for the login, or in the server's settings",
        )
    isolation = settings.get("default_transaction_isolation", _ISOLATION)
    if isolation != _ISOLATION:
        yield Fact(
            "settings",
            f"default_transaction_isolation is {isolation}: your own transactions that enqueue may "
            f"fail to serialize (Penstock's own are {_ISOLATION})",
            "try your transactions again after a serialization failure, or set "
            f"default_transaction_isolation = '{_ISOLATION}'",
        )
    if settings.get("idle_in_transaction_session_timeout") == "0":
        yield Fact(
            "settings",
            "idle_in_transaction_session_timeout is off: one forgotten transaction can stop vacuum",
            "set idle_in_transaction_session_timeout, for example to 10min",
        )


def version(number: int) -> Findings:
    """Whether Penstock supports it."""
    if number // 10000 < OLDEST:
        yield Trouble(
            f"PostgreSQL {number // 10000} is not supported: Penstock needs {OLDEST} or newer",
            f"upgrade it to {OLDEST} or newer",
            name="server",
        )


def connections(context: CheckContext) -> Findings:
    """Whether there are connections left for all workers."""
    row = context.row(sql.doctor_connections)
    most, used, workers = row["most"], row["used"], row["workers"]
    needed = workers * CONNECTIONS_PER_WORKER
    if used >= _NEARLY_FULL * most:
        yield Trouble(
            f"{used} of {most} connections are in use (max_connections): workers will be refused",
            "raise max_connections, or use a pooler (?pooler=true)",
            name="connections",
        )
    elif needed > most:
        yield Trouble(
            f"{workers} live workers use up to {needed} connections, and max_connections leaves "
            f"{most}: some will be refused",
            "raise max_connections, or use a pooler (?pooler=true)",
            grave=False,
            name="connections",
        )
    else:
        yield Fact("connections", f"{used} of {most} are in use, {workers} workers are alive")
