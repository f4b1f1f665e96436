"""The server: its version and settings, whether it can be written to, and room for connections."""

from __future__ import annotations

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.doctor_checks import CheckContext, Findings
from penstock.brokers.postgres.statements import sql

OLDEST = 14
CONNECTIONS_PER_WORKER = 4  # one listens, the others come and go
_NEARLY_FULL = 0.9
_ISOLATION = "read committed"

# What must be on, and what comes of it otherwise.
_MUST_BE_ON = {
    "fsync": "a crash of the machine may lose every job, and the database with them",
    "full_page_writes": "a crash of the machine may leave torn pages behind",
    "synchronous_commit": "a crash of the server loses jobs that were accepted",
    "autovacuum": "dead rows are never cleared away, and everything gets slower",
    "track_counts": "autovacuum does not see what there is to do",
}


def server(look: CheckContext) -> Findings:
    """Version, standby and settings."""
    yield from version(look.connection.info.server_version)
    if look.row(sql.look_standby)["standby"]:
        yield Trouble(
            "it is a standby, which can only be read: no job can be enqueued, claimed or settled",
            "name the primary with --url, for example with target_session_attrs=read-write",
            name="server",
        )
    settings = {row["name"]: row["setting"] for row in look.rows(sql.look_settings)}
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
            f"alter database {look.connection.info.dbname} reset default_transaction_read_only; "
            "the same for the login, or in the server's settings",
        )
    isolation = settings.get("default_transaction_isolation", _ISOLATION)
    if isolation != _ISOLATION:
        yield Fact(
            "settings",
            f"default_transaction_isolation is {isolation}; every transaction of Penstock's own "
            f"says {_ISOLATION}",
            "look at your own transactions that enqueue: they may have to be tried again",
        )
    if settings.get("idle_in_transaction_session_timeout") == "0":
        yield Fact(
            "settings",
            "idle_in_transaction_session_timeout is off: one forgotten transaction can stop vacuum",
            "set idle_in_transaction_session_timeout, for example to 10min",
        )


def version(number: int) -> Findings:
    """Whether it is one that Penstock is made for."""
    if number // 10000 < OLDEST:
        yield Trouble(
            f"PostgreSQL {number // 10000} is older than {OLDEST}",
            f"upgrade it to {OLDEST} or newer",
            name="server",
        )


def connections(look: CheckContext) -> Findings:
    """Whether all workers find one."""
    row = look.row(sql.look_connections)
    most, used, workers = row["most"], row["used"], row["workers"]
    wanted = workers * CONNECTIONS_PER_WORKER
    if used >= _NEARLY_FULL * most:
        yield Trouble(
            f"{used} of {most} connections are in use: the next ones are refused",
            "raise max_connections, or put a pooler in between (?pooler=true)",
            name="connections",
        )
    elif wanted > most:
        yield Trouble(
            f"{workers} live workers use up to {wanted} connections, and there are {most}",
            "raise max_connections, or put a pooler in between (?pooler=true)",
            grave=False,
            name="connections",
        )
    else:
        yield Fact("connections", f"{used} of {most} are in use, {workers} workers are alive")
