"""The routes of REST: what each takes, gives, and which role it needs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from penstock.flows.status import FlowJson
from penstock.operate.actions import ActionResult
from penstock.operate.audit import KINDS
from penstock.operate.dataset_json import GridJson, PartitionWhy, PlanJson
from penstock.operate.drop_queue import Dropped
from penstock.operate.job_view_json import JobViewJson
from penstock.operate.queue_settings import QueueOptionsJson
from penstock.operate.roles import OPERATIONS, Role
from penstock.operate.rule_fields import CLEAR_OPERATIONS
from penstock.operate.to_json import JobJson
from penstock.operate.trends import Trend, TrendFilter
from penstock.operate.worker_settings import WorkerSettingsJson
from penstock.rules.rule import RuleKind
from penstock.schedules.status import ScheduleJson
from penstock.task.dataset_plan import PipelineRun
from penstock.web.bulk_operations import Preview
from penstock.web.rest import (
    backfills,
    datasets,
    jobs,
    openapi,
    operations,
    queues,
    reads,
    rules,
    schedules,
    topics,
    workers,
)
from penstock.web.route import Parameter, Route

_V1 = "/api/v1"
_Text = Annotated[str, Meta(max_length=4000)]
_Limit = Annotated[int, Meta(ge=1, le=1000)]
_Few = Annotated[int, Meta(ge=1, le=reads.MOST_FLOWS)]
_Position = Annotated[str, Meta(max_length=200)]
_Slots = Annotated[int, Meta(ge=0, le=schedules.MOST_SLOTS)]

_ID = Parameter("id", _Text, "The id.", required=True)
_Q = Parameter("q", _Text, "A filter, as state:failed task:mail:send -tag.tenant:test since:2h.")
_AFTER = Parameter("after", _Text, "The `after` of the page before.")
_LIMIT = Parameter("limit", _Limit, "The most rows to return; 100 by default.")
_SINCE = Parameter(
    "after",
    _Position,
    "Rows after this position; 0: from the first row. Without it, the last rows.",
)
_TASK = Parameter("task", _Text, "The task.", required=True)
_FIRST = Parameter("first", _Text, "The first partition.")
_DATASET = Parameter("dataset", _Text, "The dataset.", required=True)
_RANGE = (
    Parameter("since", _Text, "The first partition."),
    Parameter("until", _Text, "The last partition."),
)
_LAST = Parameter("last", _Text, "The last partition.")
_KIND = Parameter("kind", _Text, f"One of {', '.join(KINDS)}.")
_AUTHOR = Parameter("author", _Text, "The author.")
_FROM = Parameter("since", _Text, "From this time on: 2h, 3d, or 2026-11-15.")
_UNTIL = Parameter("until", _Text, "Up to this time.")
_BEFORE = Parameter("before", _Position, "Rows before this position; without it, from the newest.")
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
    """A route with the role of its operation: that of its own name, or of `does`."""
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
    _get(
        "/jobs/many",
        "get many",
        jobs.get_many,
        "Some fields of many jobs, by id; unknown ids are left out.",
        jobs.ChosenFields,
        Parameter("ids", _Text, "Ids, with commas; 100 at most.", required=True),
        Parameter("fields", _Text, "Names of fields, with commas; all without it."),
    ),
    _get("/jobs/{id}", "get", jobs.get, "A job.", JobJson, _ID),
    _get("/jobs/{id}/why", "why", jobs.why, "Why it is in its state.", jobs.WhyJson, _ID),
    _get(
        "/why",
        "why named",
        reads.why_named,
        "Why a queue, a task, a worker, a flow or a schedule is as it is.",
        reads.WhyNamed,
        Parameter("of", _Text, "queue:mail, task:, worker:, flow:, schedule:.", required=True),
    ),
    _get(
        "/jobs/{id}/show",
        "show",
        jobs.show,
        "Everything about it: why, attempts, log, result, flow, what it spawned.",
        JobViewJson,
        _ID,
    ),
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
        "Its notes.",
        jobs.Notes,
        *(_ID, Parameter("kind", _Text, "progress, snapshot, step or log.")),
    ),
    _get("/history", "history", jobs.history, "What happened.", jobs.EventPage, _SINCE, _LIMIT),
    _get("/count", "count", reads.count, "Counts of jobs, by task.", reads.Counts),
    _get("/queues", "queues", reads.queues, "Counts of jobs, by queue.", reads.Queues),
    _get(
        "/queues/options",
        "options of queues",
        queues.options,
        "Options of queues: declared, overridden, and what holds.",
        queues.QueueOptionsList,
        Parameter("queue", _Text, "Only this queue."),
    ),
    _post(
        "/queues/set",
        "set queue",
        queues.set_options,
        "Override options of a queue; it need not exist.",
        QueueOptionsJson,
        queues.SetQueue,
    ),
    _post(
        "/queues/reset",
        "reset queue",
        queues.reset,
        "End an override of options.",
        QueueOptionsJson,
        queues.ResetQueue,
    ),
    _post(
        "/queues/drop",
        "drop queue",
        queues.drop,
        "Delete the jobs, rules and options of a queue.",
        Dropped,
        queues.DropQueue,
    ),
    _get(
        "/trends",
        "trends",
        reads.trends,
        "Rates, waits, runs and depth over an hour, a day or two weeks; null is a gap.",
        Trend,
        Parameter("over", _Text, "hour, day or fortnight; hour by default."),
        *(Parameter(name, _Text, f"Only this {name}.") for name in TrendFilter._fields),
    ),
    _get("/workers", "workers", reads.workers, "Every worker.", reads.Workers),
    _post(
        "/workers/set",
        "set worker",
        workers.set_worker,
        "Change a running worker: threads, async slots, processes, quiet, stop.",
        WorkerSettingsJson,
        workers.SetWorker,
    ),
    _post(
        "/workers/reset",
        "reset worker",
        workers.reset_worker,
        "Have a worker be as it was started.",
        workers.WasReset,
        workers.ResetWorker,
    ),
    _get("/rules", "rules", reads.rules, "Every rule.", reads.Rules),
    _get(
        "/flows",
        "flows",
        reads.flows,
        "Flows, newest first.",
        reads.Flows,
        *(Parameter("name", _Text, "The name of the flows."), _AFTER),
        Parameter("limit", _Few, "The most flows to return; 20 by default."),
        Parameter("find", _Text, "With a name: PROPERTY=VALUE; may be repeated."),
    ),
    _get("/flows/{id}", "flow", reads.flow, "A flow, or the one of a job.", FlowJson, _ID),
    _get(
        "/schedules",
        "schedules",
        schedules.list_all,
        "Every schedule, or one.",
        schedules.ScheduleList,
        *(
            Parameter("name", _Text, "Only this schedule."),
            Parameter("next", _Slots, "Number of future slots of each; 1,000 in all."),
        ),
    ),
    _post("/jobs", "enqueue", jobs.enqueue, "Store a job.", jobs.EnqueueAnswer, jobs.NewJob),
    _post(
        "/jobs/{id}/copy",
        "copy",
        jobs.copy,
        "Enqueue a copy of a job that has ended.",
        jobs.EnqueueAnswer,
        jobs.Copy,
        parameters=(_ID,),
    ),
    _post("/cancel", "cancel", jobs.action("cancel"), "Cancel jobs.", ActionResult, jobs.Act),
    _post("/retry", "retry", jobs.action("retry"), "Run jobs again.", ActionResult, jobs.RetryJobs),
    _post("/delete", "delete", jobs.action("delete"), "Delete jobs.", ActionResult, jobs.Act),
    _post(
        "/signal",
        "signal",
        jobs.signal,
        "End the jobs that wait for a signal.",
        jobs.Signalled,
        jobs.Signal,
    ),
    *(
        _post(
            f"/{kind}",
            kind.value,
            rules.set_action(kind),
            "Hold jobs back.",
            rules.RuleAnswer,
            rules.HoldRequest,
        )
        for kind in (RuleKind.PAUSE, RuleKind.BLOCK)
    ),
    *(
        _post(
            f"/{CLEAR_OPERATIONS[kind]}",
            CLEAR_OPERATIONS[kind],
            rules.clear_action(kind),
            says,
            rules.Cleared,
            rules.ReleaseRequest,
        )
        for kind, says in ((RuleKind.PAUSE, "Remove a pause."), (RuleKind.BLOCK, "Lift a block."))
    ),
    _post(
        "/limit",
        "limit",
        rules.limit,
        "Limit a queue or a task.",
        rules.SetOrCleared,
        rules.LimitRequest,
    ),
    _post(
        "/order",
        "order",
        rules.order,
        "Order a queue by key.",
        rules.SetOrCleared,
        rules.OrderRequest,
    ),
    _post(
        "/schedules",
        "put schedule",
        schedules.put,
        "Store a schedule; the same name replaces it.",
        ScheduleJson,
        schedules.NewSchedule,
    ),
    *(
        _post(f"/schedules/{verb}", f"{verb} schedule", handle, says, gives, schedules.ScheduleName)
        for verb, handle, says, gives in (
            (
                "pause",
                schedules.hold_action("pause"),
                "Pause a schedule: its slots are skipped.",
                ScheduleJson,
            ),
            ("resume", schedules.hold_action("resume"), "Resume a schedule.", ScheduleJson),
            ("run", schedules.run, "Enqueue the schedule's job now.", schedules.RunNow),
            ("remove", schedules.remove, "Remove a schedule; its jobs stay.", schedules.Removed),
        )
    ),
    _get("/topics", "topics", topics.list_all, "Every subscription.", topics.Subscriptions),
    _post(
        "/topics/publish",
        "publish",
        topics.publish,
        "Store a job for each subscription that fits the topic, or say which these are.",
        topics.Published,
        topics.NewPublication,
    ),
    _post(
        "/topics/unsubscribe",
        "unsubscribe",
        topics.unsubscribe,
        "Remove a subscription; its jobs stay.",
        topics.Unsubscribed,
        topics.SubscriptionName,
    ),
    _get("/backfills", "backfills", backfills.list_all, "Tasks with a backfill.", backfills.Tasks),
    _get(
        "/backfills/one",
        "partitions",
        backfills.one,
        "The state of each partition of a task.",
        backfills.Partitions,
        *(_TASK, _FIRST, _LAST),
    ),
    _post(
        "/backfills",
        "backfill",
        backfills.again,
        "Run a range of partitions again.",
        backfills.BackfillAnswer,
        backfills.BackfillRequest,
        does="rerun_backfill",
    ),
    _get("/datasets", "datasets", datasets.list_all, "Datasets.", datasets.DatasetList),
    _get(
        "/datasets/plan",
        "plan",
        datasets.plan,
        "What datasets lack: missing, stale, failed and late partitions.",
        PlanJson,
        Parameter("dataset", _Text, "Only this dataset, and what it needs."),
        *_RANGE,
    ),
    _get(
        "/datasets/one",
        "dataset",
        datasets.one,
        "A dataset with the state, version, rows and checks of its last partitions.",
        GridJson,
        *(_DATASET, *_RANGE),
    ),
    _get(
        "/datasets/why",
        "why partition",
        datasets.why,
        "Why a partition is as it is, and what made it.",
        PartitionWhy,
        *(_DATASET, Parameter("partition", _Text, "The partition.", required=True)),
    ),
    _post(
        "/datasets/run",
        "run datasets",
        datasets.run,
        "Enqueue what datasets lack, or count it.",
        PipelineRun,
        datasets.RunRequest,
    ),
    _get(
        "/lakes", "lakes", reads.lakes, "The lakes for which the store keeps history.", reads.Lakes
    ),
    _post(
        "/lakes/forget",
        "forget lake",
        reads.forget,
        "Stop keeping history for a lake.",
        reads.Forgotten,
        reads.Forget,
    ),
    _get(
        "/audit",
        "audit over REST",
        reads.audit,
        "Who did what, newest first.",
        reads.Audit,
        *(_KIND, _AUTHOR, _FROM, _UNTIL, _BEFORE, _LIMIT),
    ),
    _post("/doctor", "doctor", reads.doctor, "Examine the store.", reads.Findings, does="examine"),
    _get(
        "/operations/preview",
        "preview",
        operations.show_preview,
        "Count the jobs that an operation would change.",
        Preview,
        *(_VERB, _Q),
    ),
    _get(
        "/operations",
        "operations",
        operations.list_all,
        "Recent operations of this process.",
        operations.OperationList,
    ),
    _get(
        "/operations/{id}",
        "operation",
        operations.get,
        "The progress of an operation.",
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
        "Stop it after its current page.",
        operations.OperationJson,
        parameters=(_ID,),
        does="record_operation",
    ),
)
