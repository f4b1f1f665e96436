from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("release",)
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    release: str
    def __init__(self, release: _Optional[str] = ...) -> None: ...

class HelloAnswer(_message.Message):
    __slots__ = ("release", "store", "capabilities", "retention", "rules", "now")
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    release: str
    store: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    retention: float
    rules: RulesVersion
    now: float
    def __init__(self, release: _Optional[str] = ..., store: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., retention: _Optional[float] = ..., rules: _Optional[_Union[RulesVersion, _Mapping]] = ..., now: _Optional[float] = ...) -> None: ...

class RulesVersion(_message.Message):
    __slots__ = ("instance", "number")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    instance: str
    number: int
    def __init__(self, instance: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class CallRequest(_message.Message):
    __slots__ = ("verb", "arguments", "reports_ended")
    VERB_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_ENDED_FIELD_NUMBER: _ClassVar[int]
    verb: str
    arguments: bytes
    reports_ended: bool
    def __init__(self, verb: _Optional[str] = ..., arguments: _Optional[bytes] = ..., reports_ended: _Optional[bool] = ...) -> None: ...

class CallAnswer(_message.Message):
    __slots__ = ("value", "failure", "rules", "ended", "now")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    failure: Failure
    rules: RulesVersion
    ended: bytes
    now: float
    def __init__(self, value: _Optional[bytes] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., rules: _Optional[_Union[RulesVersion, _Mapping]] = ..., ended: _Optional[bytes] = ..., now: _Optional[float] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "fields")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    fields: bytes
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., fields: _Optional[bytes] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("watch",)
    WATCH_FIELD_NUMBER: _ClassVar[int]
    watch: str
    def __init__(self, watch: _Optional[str] = ...) -> None: ...

class News(_message.Message):
    __slots__ = ("hints", "rules")
    HINTS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    hints: int
    rules: RulesVersion
    def __init__(self, hints: _Optional[int] = ..., rules: _Optional[_Union[RulesVersion, _Mapping]] = ...) -> None: ...

class HeardRequest(_message.Message):
    __slots__ = ("watch", "rules")
    WATCH_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    watch: str
    rules: RulesVersion
    def __init__(self, watch: _Optional[str] = ..., rules: _Optional[_Union[RulesVersion, _Mapping]] = ...) -> None: ...

class HeardAnswer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("slice",)
    SLICE_FIELD_NUMBER: _ClassVar[int]
    slice: bytes
    def __init__(self, slice: _Optional[bytes] = ...) -> None: ...

class ScanPart(_message.Message):
    __slots__ = ("batches", "failure")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    batches: bytes
    failure: Failure
    def __init__(self, batches: _Optional[bytes] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...
