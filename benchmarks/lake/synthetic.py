"""A history that nobody lived: attempts, events and gauges of any size, made by Spark.

Every value follows from the row's number by a hash, so that the same size is the same history.
"""

from __future__ import annotations

from typing import Any

START = 1_788_220_800  # 2026-09-01
ATTEMPTS = """
    lpad(string(number + 1), 20, '0') as position,
    'bench' as shard,
    lower(concat('0190a6c4-5e1f-7000-8000-', lpad(hex(number), 12, '0'))) as job,
    if(state = 'ready', 1, 1 + int(u4 < 0.02)) as attempt,
    queue,
    concat(queue, ':', element_at(array('send', 'sweep', 'render', 'sync'), kind + 1)) as task,
    1 + int(at > {middle}) as version,
    0 as priority,
    state,
    case when state = 'succeeded' then null when u5 < 0.6 then 'error'
         when u5 < 0.8 then 'timeout' else 'crashed' end as reason,
    string(null) as key,
    int(state = 'failed') as failures,
    int(state <> 'succeeded' and u5 >= 0.8) as lapses,
    timestamp_micros(bigint((at - wait) * 1000000)) as enqueued_at,
    timestamp_micros(bigint((at - wait) * 1000000)) as run_at,
    timestamp_micros(bigint(at * 1000000)) as started_at,
    timestamp_micros(bigint((at + run) * 1000000)) as ended_at,
    concat('worker-', number % 12) as worker,
    map('tenant', concat('t', int(40 * u6 * u6))) as tags,
    case when state = 'succeeded' or u5 >= 0.8 then null
         when u5 < 0.3 then concat('Traceback\n  …\nConnectionError: host ', int(u6 * 900))
         when u5 < 0.6 then concat('Traceback\n  …\nValueError: order ', number, ' has no lines')
         else 'Timeout: after 60 s' end as error,
    concat('{{"n":', number, '}}') as arguments,
    '{{}}' as headers,
    if(number % 20 < 4, concat('flow-', number div 20), null) as flow,
    if(number % 20 < 4, if(number % 20 = 3, concat('flow-', number div 20),
       concat('node-', number)), null) as node,
    string(null) as result,
    '' as app,
    2 as schema_version
"""


def attempts(
    spark: Any,
    rows: int,
    days: int = 28,
    parts: int = 8,
    numbers: tuple[int, int] | None = None,
) -> Any:
    """So many attempts over so many days: busier by day than by night, and growing.

    With `numbers` only those of this range of them.
    """
    span = days * 86400
    numbered = spark.range(*(numbers or (0, rows)), 1, parts).withColumnRenamed("id", "number")
    # The four jobs of a flow have their place, queue and tenant from its first one.
    led = numbered.selectExpr("*", "if(number % 20 < 4, number - number % 20, number) as first")
    rolled = led.selectExpr(
        "number",
        "first",
        *(
            f"(abs(hash({'first' if seed in (1, 2, 6) else 'number'}, {seed})) % 1000003 + 0.5)"
            f" / 1000003.0d as u{seed}"
            for seed in range(1, 8)
        ),
    )
    placed = rolled.selectExpr(
        "*",
        # In order, with a bow: days later on hold more; and half of it drawn to the afternoon.
        f"{START} + {span} * pow((first + u1) / {rows}.0d, 0.85d) as smooth",
        "element_at(array('mail', 'mail', 'mail', 'media', 'media', 'billing'),"
        " int(u2 * 6) + 1) as queue",
        "int(if(number % 20 < 4, number % 20, u3 * 4)) as kind",
        "case when u7 < 0.955 then 'succeeded' when u7 < 0.985 then 'ready' else 'failed' end"
        " as state",
    ).selectExpr(
        "*",
        f"if(u6 < 0.5, smooth, {START} + 86400 * floor((smooth - {START}) / 86400)"
        " + 3600 * (9 + 8 * u1)) + if(number % 20 < 4, kind * 12, 0) as at",
        "-ln(u4) * (kind + 1) * if(queue = 'media', 4.0d, 0.4d) as run",
        "-ln(u5) * if(queue = 'billing', 6.0d, 1.5d) as wait",
    )
    middle = START + span / 2
    return placed.selectExpr(*_columns(ATTEMPTS.format(middle=middle)))


def gauges(spark: Any, days: int = 28, every: int = 60) -> Any:
    """A gauge per queue and minute, with an outage on one afternoon."""
    outage = START + (days - 2) * 86400 + 13 * 3600
    moments = spark.range(0, days * 86400 // every).selectExpr(
        "id as number", f"{START} + id * {every} as at"
    )
    queues = spark.createDataFrame(
        [("mail", 1), ("media", 2), ("billing", 3)], "queue string, q int"
    )
    counted = moments.crossJoin(queues).selectExpr(
        "*",
        f"if(q = 1 and at between {outage} and {outage} + 7200, (at - {outage}) / 2, 0) as stuck",
        "bigint(20 * q * pow(sin(pi() * (at % 86400) / 86400), 4)"
        " + abs(hash(at, q)) % (5 * q)) as calm",
    )
    return counted.selectExpr(
        "lpad(string(number * 4 + q), 20, '0') as position",
        "'bench' as shard",
        "timestamp_seconds(at) as at",
        "queue",
        "bigint(calm + stuck) as ready",
        "bigint(q) as scheduled",
        "bigint(0) as waiting",
        "bigint(0) as paused",
        "bigint(0) as limited",
        "if(stuck > 0, 0L, bigint(2 + calm / 8)) as running",
        "bigint(q) as failed",
        "double(calm / 10.0 + stuck) as oldest",
        "2 as schema_version",
    )


def events(spark: Any, rows: int, days: int = 28) -> Any:
    """Decisions of an hourly and a nightly schedule, about jobs that are among the attempts."""
    slots = spark.range(0, days * 24).selectExpr("id", f"{START} + id * 3600 as at")
    number = f"lpad(hex(bigint(id * {rows} / {days * 24})), 12, '0')"
    job = f"lower(concat('0190a6c4-5e1f-7000-8000-', {number}))"
    said = (
        "to_json(named_struct('schedule', if(id % 24 = 2, 'nightly', 'hourly'), 'says',"
        " if(id % 37 = 0, 'skipped: overlap', 'enqueued'), 'slot',"
        " date_format(timestamp_seconds(at), \"yyyy-MM-dd'T'HH:mm:ss'Z'\")))"
    )
    return slots.selectExpr(
        "lpad(string(id * 5 + 4), 20, '0') as position",
        "'bench' as shard",
        "'schedule' as kind",
        "timestamp_seconds(at) as at",
        f"if(id % 37 = 0, null, {job}) as job",
        "'mail' as queue",
        "'mail:sweep' as task",
        "1 as version",
        "int(null) as attempt",
        "string(null) as state",
        "string(null) as reason",
        "string(null) as key",
        "cast(map() as map<string,string>) as tags",
        f"{said} as data",
        "'' as app",
        "2 as schema_version",
    )


def _columns(text: str) -> list[str]:
    """Expressions between commas, but not those inside brackets or quotes."""
    found, start, depth, quoted = list[str](), 0, 0, False
    for at, sign in enumerate(text):
        if sign == "'":
            quoted = not quoted
        elif not quoted:
            depth += (sign == "(") - (sign == ")")
            if sign == "," and not depth:
                found.append(text[start:at].strip())
                start = at + 1
    found.append(text[start:].strip())
    return found
