"""The routes of REST: what each takes, gives, and which role it needs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from penstock.flows.status import FlowJson
from penstock.operate.actions import Acted
from penstock.operate.audit import KINDS
from penstock.operate.roles import OPERATIONS, Role
from penstock.operate.rule_fields import OFF
from penstock.operate.to_json import JobJson
from penstock.rules.rule import RuleKind
from penstock.schedules.status import ScheduleJson
from penstock.web.bulk_operations import Preview
from penstock.web.rest import backfills, jobs, look, openapi, operations, rules, schedules
from penstock.web.route import Parameter, Route

_V1 = "/api/v1"
_Text = Annotated[str, Meta(max_length=4000)]
_Limit = Annotated[int, Meta(ge=1, le=1000)]
_Few = Annotated[int, Meta(ge=1, le=look.MOST_FLOWS)]
_Position = Annotated[str, Meta(max_length=200)]
_Slots = Annotated[int, Meta(ge=0, le=schedules.MOST_SLOTS)]

_ID = Parameter("id", _Text, "The id.", required=True)
_Q = Parameter("q", _Text, "A filter, as state:failed task:mail:send -tag.tenant:test since:2h.")
_AFTER = Parameter("after", _Text, "Go on from here: as the page before had it.")
_LIMIT = Parameter("limit", _Limit, "Most to answer with; 100 if left out.")
_SINCE = Parameter(
    "after",
    _Position,
    "Rows after this position, as a row has it; 0 from the first, without it the last ones.",
)
_TASK = Parameter("task", _Text, "The task.", required=True)
_FIRST = Parameter("first", _Text, "From this partition on.")
_LAST = Parameter("last", _Text, "Up to this one.")
_KIND = Parameter("kind", _Text, f"One of {', '.join(KINDS)}.")
_AUTHOR = Parameter("author", _Text, "Who.")
_FROM = Parameter("since", _Text, "Not before: 2h, 3d, or 2026-11-15.")
_UNTIL = Parameter("until", _Text, "Not after.")
_BEFORE = Parameter(
    "before", _Position, "Before this position, as a row has it; without it from the newest."
)
_VERB = Parameter("verb", _Text, "cancel, retry or delete.", required=True)


def _get(path: str, name: str, handle: Any, says: str, gives: Any, *parameters: Parameter) -> Route:
    return Route(
        "GET", _V1 + path, name, handle, Role.VIEW, says=says, parameters=parameters, gives=gives
    )


def _post(  # noqa: PLR0917  a line of the table
    path: str,
    name: str,
    handle: Any,
    says: str,
    gives: Any,
    takes: Any = None,
    parameters: tuple[Parameter, ...] = (),
    *,
    does: str = "",
) -> Route:
    """The role is that of the operation, which the route is called by unless `does` names it."""
    does = does or name.replace(" ", "_")
    return Route(
        "POST",
        _V1 + path,
        name,
        handle,
        OPERATIONS[does].role,
        says=says,
        parameters=parameters,
        takes=takes,
        gives=gives,
        does=does,
    )


REST: tuple[Route, ...] = (
    _get("/openapi.json", "openapi", openapi.show, "This description.", dict[str, Any]),
    _get("/jobs", "find", jobs.find, "Jobs, newest first.", jobs.JobPage, _Q, _AFTER, _LIMIT),
    _get("/jobs/{id}", "get", jobs.get, "A job.", JobJson, _ID),
    _get("/jobs/{id}/why", "why", jobs.why, "Why it is where it is.", jobs.WhyJson, _ID),
    _get(
        "/jobs/{id}/history",
        "history of a job",
        jobs.history_of,
        "What happened to it.",
        jobs.EventPage,
        *(_ID, _SINCE, _LIMIT),
    ),
    _get(
        "/jobs/{id}/notes",
        "notes",
        jobs.notes,
        "What it left behind.",
        jobs.Notes,
        *(_ID, Parameter("kind", _Text, "progress, snapshot, step or log.")),
    ),
    _get("/history", "history", jobs.history, "What happened.", jobs.EventPage, _SINCE, _LIMIT),
    _get("/count", "count", look.count, "Where jobs stand, by task.", look.Counts),
    _get("/queues", "queues", look.queues, "Where jobs stand, by queue.", look.Queues),
    _get("/workers", "workers", look.workers, "Every worker.", look.Workers),
    _get("/rules", "rules", look.rules, "Every rule.", look.Rules),
    _get(
        "/flows",
        "flows",
        look.flows,
        "Flows, newest first.",
        look.Flows,
        *(Parameter("name", _Text, "Of this name."), _AFTER),
        Parameter("limit", _Few, "Most to answer with; 20 if left out."),
        Parameter("find", _Text, "With a name: PROPERTY=VALUE; may be given again."),
    ),
    _get("/flows/{id}", "flow", look.flow, "A flow, or the one of a job.", FlowJson, _ID),
    _get(
        "/schedules",
        "schedules",
        schedules.every,
        "Every schedule, or one.",
        schedules.ScheduleList,
        *(
            Parameter("name", _Text, "This one."),
            Parameter("next", _Slots, "So many slots, of all together 1,000."),
        ),
    ),
    _post("/jobs", "enqueue", jobs.enqueue, "Store a job.", jobs.EnqueueAnswer, jobs.NewJob),
    _post(
        "/jobs/{id}/copy",
        "copy",
        jobs.copy,
        "Store a new job like one that has ended.",
        jobs.EnqueueAnswer,
        jobs.Copy,
        parameters=(_ID,),
    ),
    _post("/cancel", "cancel", jobs.acting("cancel"), "End jobs.", Acted, jobs.Act),
    _post("/retry", "retry", jobs.acting("retry"), "Run jobs again.", Acted, jobs.Act),
    _post("/delete", "delete", jobs.acting("delete"), "Forget jobs.", Acted, jobs.Act),
    _post("/signal", "signal", jobs.signal, "End whoever waits.", jobs.Signalled, jobs.Signal),
    *(
        _post(
            f"/{kind}", kind.value, rules.holding(kind), "Hold jobs back.", rules.Set, rules.About
        )
        for kind in (RuleKind.PAUSE, RuleKind.BLOCK)
    ),
    *(
        _post(f"/{OFF[kind]}", OFF[kind], rules.lifting(kind), says, rules.Cleared, rules.Gone)
        for kind, says in ((RuleKind.PAUSE, "Remove a pause."), (RuleKind.BLOCK, "Lift a block."))
    ),
    _post("/limit", "limit", rules.limit, "Limit a queue or a task.", rules.Limited, rules.Limit),
    _post("/order", "order", rules.order, "Order a queue by key.", rules.Limited, rules.Order),
    _post(
        "/schedules",
        "put schedule",
        schedules.put,
        "Keep a schedule; the same name replaces it.",
        ScheduleJson,
        schedules.NewSchedule,
    ),
    *(
        _post(f"/schedules/{verb}", f"{verb} schedule", handle, says, gives, schedules.Named)
        for verb, handle, says, gives in (
            ("pause", schedules.holding("pause"), "Skip its slots.", ScheduleJson),
            ("resume", schedules.holding("resume"), "Go on with the next slot.", ScheduleJson),
            ("run", schedules.run, "Enqueue its job now.", schedules.RunNow),
            ("remove", schedules.remove, "Forget it; its jobs stay.", schedules.Removed),
        )
    ),
    _get("/backfills", "backfills", backfills.every, "Tasks with a backfill.", backfills.Tasks),
    _get(
        "/backfills/one",
        "partitions",
        backfills.one,
        "Where each partition of a task is.",
        backfills.Partitions,
        *(_TASK, _FIRST, _LAST),
    ),
    _post(
        "/backfills",
        "backfill",
        backfills.again,
        "Run a range of partitions once more.",
        backfills.BackfillAnswer,
        backfills.Again,
        does="fill_again",
    ),
    _get("/lakes", "lakes", look.lakes, "For whom history is kept.", look.Lakes),
    _post(
        "/lakes/forget",
        "forget lake",
        look.forget,
        "Keep nothing for it any more.",
        look.Forgotten,
        look.Forget,
    ),
    _get(
        "/audit",
        "audit over REST",
        look.audit,
        "Who did what, newest first.",
        look.Audit,
        *(_KIND, _AUTHOR, _FROM, _UNTIL, _BEFORE, _LIMIT),
    ),
    _post("/doctor", "doctor", look.doctor, "Examine the store.", look.Findings, does="examine"),
    _get(
        "/operations/preview",
        "preview",
        operations.look_ahead,
        "How many jobs an operation would be about.",
        Preview,
        *(_VERB, _Q),
    ),
    _get(
        "/operations",
        "operations",
        operations.every,
        "Operations that are remembered.",
        operations.OperationList,
    ),
    _get(
        "/operations/{id}",
        "operation",
        operations.get,
        "How far it is.",
        operations.OperationJson,
        _ID,
    ),
    _post(
        "/operations",
        "begin operation",
        operations.begin,
        "Cancel, retry or delete by filter.",
        operations.OperationJson,
        operations.Begin,
        does="record_operation",
    ),
    _post(
        "/operations/{id}/cancel",
        "cancel operation",
        operations.cancel,
        "End it after the page it is at.",
        operations.OperationJson,
        parameters=(_ID,),
        does="record_operation",
    ),
)
