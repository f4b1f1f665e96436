from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[State]
    SETTLED: _ClassVar[State]
    STALE: _ClassVar[State]
UNKNOWN: State
SETTLED: State
STALE: State

class EnqueueRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class NewJob(_message.Message):
    __slots__ = ("task", "arguments", "once", "queue", "due_at", "priority", "unique_key", "tags", "app", "version")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    task: str
    arguments: bytes
    once: str
    queue: str
    due_at: int
    priority: int
    unique_key: str
    tags: _containers.ScalarMap[str, str]
    app: str
    version: int
    def __init__(self, task: _Optional[str] = ..., arguments: _Optional[bytes] = ..., once: _Optional[str] = ..., queue: _Optional[str] = ..., due_at: _Optional[int] = ..., priority: _Optional[int] = ..., unique_key: _Optional[str] = ..., tags: _Optional[_Mapping[str, str]] = ..., app: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class EnqueueAnswer(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("credits", "receiver", "tasks", "queues", "app", "version", "job_timeout", "holding", "settlements")
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOB_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    credits: int
    receiver: str
    tasks: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    app: str
    version: int
    job_timeout: int
    holding: _containers.RepeatedScalarFieldContainer[str]
    settlements: _containers.RepeatedCompositeFieldContainer[Settlement]
    def __init__(self, credits: _Optional[int] = ..., receiver: _Optional[str] = ..., tasks: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ..., app: _Optional[str] = ..., version: _Optional[int] = ..., job_timeout: _Optional[int] = ..., holding: _Optional[_Iterable[str]] = ..., settlements: _Optional[_Iterable[_Union[Settlement, _Mapping]]] = ...) -> None: ...

class ReceiveAnswer(_message.Message):
    __slots__ = ("jobs", "now", "lease", "settled")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[ReceivedJob]
    now: int
    lease: int
    settled: _containers.RepeatedCompositeFieldContainer[Settled]
    def __init__(self, jobs: _Optional[_Iterable[_Union[ReceivedJob, _Mapping]]] = ..., now: _Optional[int] = ..., lease: _Optional[int] = ..., settled: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ...) -> None: ...

class ReceivedJob(_message.Message):
    __slots__ = ("id", "attempt", "task", "arguments", "queue", "due_at", "enqueued_at", "tags", "version", "failures")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_AT_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    id: str
    attempt: int
    task: str
    arguments: bytes
    queue: str
    due_at: int
    enqueued_at: int
    tags: _containers.ScalarMap[str, str]
    version: int
    failures: int
    def __init__(self, id: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[str] = ..., arguments: _Optional[bytes] = ..., queue: _Optional[str] = ..., due_at: _Optional[int] = ..., enqueued_at: _Optional[int] = ..., tags: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., failures: _Optional[int] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("receiver", "settlements")
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    receiver: str
    settlements: _containers.RepeatedCompositeFieldContainer[Settlement]
    def __init__(self, receiver: _Optional[str] = ..., settlements: _Optional[_Iterable[_Union[Settlement, _Mapping]]] = ...) -> None: ...

class Settlement(_message.Message):
    __slots__ = ("id", "attempt", "succeed", "fail", "retry_later", "put_back", "extend")
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SUCCEED_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    RETRY_LATER_FIELD_NUMBER: _ClassVar[int]
    PUT_BACK_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    id: str
    attempt: int
    succeed: Succeed
    fail: Fail
    retry_later: RetryLater
    put_back: PutBack
    extend: Extend
    def __init__(self, id: _Optional[str] = ..., attempt: _Optional[int] = ..., succeed: _Optional[_Union[Succeed, _Mapping]] = ..., fail: _Optional[_Union[Fail, _Mapping]] = ..., retry_later: _Optional[_Union[RetryLater, _Mapping]] = ..., put_back: _Optional[_Union[PutBack, _Mapping]] = ..., extend: _Optional[_Union[Extend, _Mapping]] = ...) -> None: ...

class Succeed(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    def __init__(self, result: _Optional[bytes] = ...) -> None: ...

class Fail(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class RetryLater(_message.Message):
    __slots__ = ("error", "after")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    error: str
    after: int
    def __init__(self, error: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class PutBack(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: int
    def __init__(self, after: _Optional[int] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("hold",)
    HOLD_FIELD_NUMBER: _ClassVar[int]
    hold: int
    def __init__(self, hold: _Optional[int] = ...) -> None: ...

class SettleAnswer(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[State]
    def __init__(self, states: _Optional[_Iterable[_Union[State, str]]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("id", "attempt", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    attempt: int
    state: State
    def __init__(self, id: _Optional[str] = ..., attempt: _Optional[int] = ..., state: _Optional[_Union[State, str]] = ...) -> None: ...
