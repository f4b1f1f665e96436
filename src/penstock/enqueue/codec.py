"""Arguments and results as JSON, driven by the annotations of the function.

A job's body is one JSON object: `{"args": {...}}`, then whatever was set for this one job. What is
encoded is decoded again at once with the typed decoder that the worker will use: that round trip
is the type check. Values are walked only when there is reason to, see `json_faults`.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from penstock.broker.checks import MOST_BODY_BYTES
from penstock.enqueue.json_faults import (
    LARGEST_INT,
    SMALLEST_INT,
    change_in,
    fault_in,
    is_pydantic,
    kind_of,
)
from penstock.errors import Refused
from penstock.flows.flow import Member
from penstock.flows.outputs import Output, OutputInside, Path, taken_out
from penstock.task.retry import Retry, Strategy
from penstock.task.signature import hints_of, signature_text, type_text

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_WHERE = re.compile(r"(?P<message>.*) - at `(?:key in )?\$(?P<path>.*)`", re.DOTALL)
_INT = typing.Annotated[int, msgspec.Meta(ge=SMALLEST_INT, le=LARGEST_INT)]


class RetryWire(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of a Retry; the exception classes are code, and stay with the task."""

    limit: int | None = 3
    delay: float = 10.0
    factor: float = 1.0
    jitter: float = 0.0
    max: float = 3600.0
    then: typing.Literal["fail", "delete"] = "fail"
    min: float = 0.0


class JobOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a body says beside the arguments: headers, and what this job does unlike its task."""

    headers: dict[str, str] = {}
    timeout: float | None = None
    retry: RetryWire | None = None
    on_success: Strategy | None = None
    on_error: Strategy | None = None
    on_timeout: Strategy | None = None
    crash_budget: int | None = None  # crashes that end it; None: the usual number
    secret: tuple[str, ...] = ()  # argument fields never logged, shown or exported
    keep_secrets: float | None = None  # seconds that they stay, encrypted, after an end
    flow: Member | None = None  # its place in a flow


class Body(JobOptions, kw_only=True, omit_defaults=True):
    """A job's body, its arguments not yet read."""

    args: Raw


_read_body = msgspec.json.Decoder(Body).decode


def read_body(body: bytes) -> Body:
    """The body of a job whose task need not be known; `Refused` if it cannot be read."""
    try:
        return _read_body(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"the body is not readable: {error}") from error


def retry_numbers(retry: Retry) -> RetryWire:
    return RetryWire(**{name: getattr(retry, name) for name in RetryWire.__struct_fields__})


def add_options(body: bytes, options: bytes) -> bytes:
    """Join an encoded `{"args": ...}` and encoded options into one object."""
    return body if options == b"{}" else b"".join((body[:-1], b",", options[1:]))


def _to_plain(value: Any) -> Any:
    if isinstance(value, Output):
        raise OutputInside
    if is_pydantic(kind_of(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    raise NotImplementedError  # how a hook tells msgspec that the value has no JSON form


def _from_plain(kind: Any, value: Any) -> Any:
    if is_pydantic(kind):
        # As JSON, because a strict model takes a text for a date only from there.
        return kind.model_validate_json(msgspec.json.encode(value))
    if kind is object:
        return value
    raise NotImplementedError  # as above, for the annotation


_encode = msgspec.json.Encoder(enc_hook=_to_plain).encode


def encode_value(value: object, what: str) -> bytes:
    """Any value that has a JSON form; whoever reads it gives the type. `what` opens the refusal."""
    try:
        encoded = _encode(value)
    except Exception as error:
        raise Refused(fault_in(value, what) or f"{what}: {error}") from error
    if fault := fault_in(value, what):
        raise Refused(fault)
    return _not_too_large(encoded, what)


def decode_value(encoded: bytes, kind: Any = Any) -> Any:
    """Read what `encode_value` wrote."""
    return msgspec.json.decode(encoded, type=kind, dec_hook=_from_plain)


def _not_too_large(encoded: bytes, what: str) -> bytes:
    if len(encoded) > MOST_BODY_BYTES:
        raise Refused(
            f"{what}: {len(encoded)} bytes as JSON, more than the limit of {MOST_BODY_BYTES};"
            " store the data elsewhere and send a reference"
        )
    return encoded


class _DecoderGaps(typing.NamedTuple):
    untyped: bool  # the annotation leaves the type, or the depth, open: compare what comes back
    big_ints: bool  # integers whose size the decoder does not check
    floats: bool  # floats, of which some would silently be written as null


def _decoder_gaps(annotation: Any) -> _DecoderGaps:
    """What the typed decoder alone cannot vouch for; raises TypeError for what has no JSON form."""
    untyped = big_ints = floats = False
    above: set[int] = set()

    def examine(node: Any) -> None:
        nonlocal untyped, big_ints, floats
        if isinstance(node, tuple):
            for part in cast("tuple[Any, ...]", node):
                examine(part)
        elif isinstance(node, (msgspec.inspect.Type, msgspec.inspect.Field)):
            if id(node) in above:
                untyped = True
                return
            if isinstance(node, msgspec.inspect.CustomType):
                if not (is_pydantic(node.cls) or node.cls is object):
                    raise TypeError(f"{type_text(node.cls)} has no JSON form")
                untyped = True
            untyped = untyped or isinstance(node, msgspec.inspect.AnyType)
            big_ints = big_ints or (isinstance(node, msgspec.inspect.IntType) and node.le is None)
            floats = floats or isinstance(node, msgspec.inspect.FloatType)
            above.add(id(node))
            for name in node.__struct_fields__:
                if name not in {"default", "default_factory", "cls"}:
                    examine(getattr(node, name))
            above.discard(id(node))

    examine(msgspec.inspect.type_info(annotation))
    return _DecoderGaps(untyped, big_ints, floats)


class ArgumentCodec:
    """Turns calls of one function into bodies, and bodies into calls. Made once per task.

    `leave_out` names the parameters that are never stored; `names` are local names that string
    annotations may mention.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        leave_out: Collection[str] = (),
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self.text = signature_text(function, leave_out)
        self._leave_out = frozenset(leave_out)
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        self._parameters = [each for each in parameters if each.name not in self._leave_out]
        hints = hints_of(function, names or {}, [each.name for each in self._parameters])
        fields: list[Any] = []
        self._untyped: frozenset[str] = frozenset()
        self._big_ints = self._floats = False
        for parameter in self._parameters:
            annotation = hints.get(parameter.name, Any)
            annotation = _INT if annotation is int else annotation
            fields.append(self._field(parameter, annotation))
        self._arguments: type[msgspec.Struct] = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
        body = msgspec.defstruct(
            "Body", [("args", self._arguments)], bases=(JobOptions,), kw_only=True
        )
        decoder = msgspec.json.Decoder(body, dec_hook=_from_plain)
        self._decode: Callable[[bytes], Any] = decoder.decode

        ordinary = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        self._ordinary = all(each.kind in ordinary for each in self._parameters)
        positional: list[str] = []
        for parameter in parameters:
            if parameter.kind != parameter.POSITIONAL_OR_KEYWORD or parameter.name in leave_out:
                break
            positional.append(parameter.name)
        self._positional = len(positional)
        # Binds arguments to names as a call does, four times faster than a dict and a zip.
        rest = [each.name for each in self._parameters if each.name not in positional]
        self._sent: Callable[..., Any] = msgspec.defstruct(
            "Sent", [(name, Any, UNSET) for name in (*positional, *rest)]
        )
        # All of it can be handed over by position, straight from the decoded struct.
        self._by_position = len(positional) == len(self._parameters)
        self._has_defaults = any(each.default is not each.empty for each in self._parameters)
        # What each parameter is stored as; one with a default may be left out, and is then unset.
        self.kinds: dict[str, Any] = {name: kind for name, kind, *_ in fields}
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}

    def _field(self, parameter: inspect.Parameter, annotation: Any) -> Any:
        name = parameter.name
        field: Any
        try:
            gaps = _decoder_gaps(annotation)
            if parameter.kind == parameter.VAR_POSITIONAL:
                field = (name, tuple[annotation, ...], ())
            elif parameter.kind == parameter.VAR_KEYWORD:
                field = (name, dict[str, annotation], msgspec.field(default_factory=dict))
            elif parameter.default is parameter.empty:
                field = (name, annotation)
            else:
                field = (name, typing.Union[annotation, UnsetType], UNSET)  # noqa: UP007  of any two
            msgspec.json.Decoder(field[1], dec_hook=_from_plain)
        except TypeError as error:
            raise Refused(
                f"{self.text}: parameter {name} cannot be stored as JSON: {error}; annotate it with"
                " plain data, a dataclass, a Struct or a pydantic model, or make it a resource with"
                " use(...)"
            ) from error
        if gaps.untyped:
            self._untyped |= {name}
        self._big_ints = self._big_ints or gaps.big_ints
        self._floats = self._floats or gaps.floats
        return field

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The body of this call, `{"args": {...}}`; `Refused` if it is not one of this function.

        Raises OutputInside where `encode_around_outputs` is to be asked instead.
        """
        try:
            if self._ordinary and len(args) <= self._positional:
                sent = self._sent(*args, **kwargs)
            else:
                sent = self._sent(**self._signature.bind(*args, **kwargs).arguments)
            encoded = _encode({"args": sent})
            if len(encoded) > MOST_BODY_BYTES:
                _not_too_large(encoded, self.text)
            back = self._decode(encoded)
        except (Refused, OutputInside):
            raise
        except Exception as error:
            raise self._refusal(args, kwargs, error) from error
        if (
            self._untyped
            or (self._floats and b"null" in encoded)
            or (self._big_ints and _LONG_NUMBER.search(encoded) is not None)
        ):
            self._check_round_trip(sent, back.args)
        return encoded

    def encode_around_outputs(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[bytes, list[tuple[Path, Output]]]:
        """The body with null in place of outputs, and where each of them belongs.

        Arguments without one are checked as ever; those with one only when the job runs.
        """
        try:
            sent = self._signature.bind(*args, **kwargs).arguments
            if sent.keys() & self._leave_out:
                raise self._refusal(args, kwargs, TypeError())
            plain, outputs = taken_out(sent, _to_plain)
        except Refused:
            raise
        except Exception as error:
            raise self._refusal(args, kwargs, error) from error
        with_output = {path[0] for path, _ in outputs}
        for name, value in sent.items():
            if name not in with_output:
                self._check_one(name, value, msgspec.json.encode(plain[name]))
        return _not_too_large(_encode({"args": plain}), self.text), outputs

    def first_argument_encoder(self, body: bytes) -> Callable[[Any], bytes] | None:
        """Encodes the call of `body` with another first argument, and checks only that one.

        None for a function whose first parameter has no name to pass it by.
        """
        if not self._positional:
            return None
        name = self._parameters[0].name
        rest = msgspec.json.decode(body)["args"]
        del rest[name]
        head = b'{"args":{%s:' % msgspec.json.encode(name)
        tail = b"," + msgspec.json.encode(rest)[1:] + b"}" if rest else b"}}"

        def encode(first: Any) -> bytes:
            try:
                encoded = _encode(first)
            except OutputInside:
                raise
            except Exception as error:
                raise self._refusal((first,), rest, error) from error
            self._check_one(name, first, encoded)
            return _not_too_large(b"".join((head, encoded, tail)), self.text)

        return encode

    def _check_one(self, name: str, value: Any, encoded: bytes) -> None:
        decoder = self._decoders.get(name)
        if decoder is None:
            decoder = msgspec.json.Decoder(self.kinds[name], dec_hook=_from_plain)
            self._decoders[name] = decoder
        try:
            back = decoder.decode(encoded)
        except Exception as error:
            raise Refused(f"{self.text}: {name}: {_with_path(error)}") from error
        path = f"argument {name}"
        fault = change_in(value, back, path) if name in self._untyped else fault_in(value, path)
        if fault:
            raise Refused(fault)

    def encode_many(
        self, rows: Iterable[tuple[Any, ...] | Mapping[str, Any]], first: int = 0
    ) -> list[bytes]:
        """The bodies of many calls; a refusal names the row, counted on from `first`."""
        bodies: list[bytes] = []
        add, encode = bodies.append, self.encode
        for row in rows:
            try:
                if isinstance(row, tuple):
                    add(encode(row, {}))
                elif isinstance(row, (dict, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]  rows come from anywhere
                    add(encode((), row))
                else:
                    raise Refused(f"{row!r:.100}: a row is a tuple or a dict of arguments")
            except (Refused, OutputInside) as error:
                raise Refused(f"row {first + len(bodies)}: {error}") from error
        return bodies

    def _refusal(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
    ) -> Refused:
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as mismatch:
            return Refused(f"{self.text}: {mismatch}")
        if resources := bound.keys() & self._leave_out:
            name = min(resources)
            return Refused(
                f"{self.text}: {name} is a resource, made where the job runs; leave it out"
            )
        for name, value in bound.items():
            if fault := fault_in(value, f"argument {name}"):
                return Refused(fault)
        return Refused(f"{self.text}: {_with_path(error)}")

    def _check_round_trip(self, sent: Any, back: Any) -> None:
        for parameter in self._parameters:
            name = parameter.name
            value, path = getattr(sent, name), f"argument {name}"
            if value is UNSET:
                continue
            if name in self._untyped:
                fault = change_in(value, getattr(back, name), path)
            else:
                fault = fault_in(value, path)
            if fault:
                raise Refused(fault)

    def read(self, body: bytes) -> tuple[JobOptions, tuple[Any, ...], dict[str, Any]]:
        """The options, and the call `function(*args, **kwargs)`, that a body stands for."""
        try:
            options = self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"{self.text}: {_with_path(error)}") from error
        values = astuple(options.args)
        if self._by_position and not (self._has_defaults and _any_unset(values)):
            return options, values, {}
        args, kwargs = self._call(options.args)
        return options, args, kwargs

    def decode(self, arguments: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call that encoded arguments (`Body.args`) stand for."""
        _, args, kwargs = self.read(b"".join((b'{"args":', arguments, b"}")))
        return args, kwargs

    def _call(self, arguments: msgspec.Struct) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._parameters:
            value = getattr(arguments, parameter.name)
            if parameter.kind == parameter.VAR_POSITIONAL:
                if value:
                    # What comes before it has to be given by position, too.
                    args += [kwargs.pop(each.name) for each in self._before(parameter, kwargs)]
                    args.extend(value)
            elif parameter.kind == parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif value is UNSET:
                continue
            elif parameter.kind == parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        return tuple(args), kwargs

    def _before(self, rest: inspect.Parameter, given: Mapping[str, Any]) -> list[inspect.Parameter]:
        before = self._parameters[: self._parameters.index(rest)]
        return [each for each in before if each.name in given]


def _any_unset(values: tuple[Any, ...]) -> bool:
    return any(value is UNSET for value in values)


def _with_path(error: Exception) -> str:
    """A decoder's message with the path in front: "to: Expected `str`, got `int`"."""
    match = _WHERE.fullmatch(str(error))
    if match is None:
        return str(error)
    path = match["path"].removeprefix(".args").removeprefix(".")
    return f"{path}: {match['message']}" if path else match["message"]


class ResultCodec:
    """Turns what a function returns into JSON, and back. `what` opens every refusal."""

    def __init__(self, annotation: Any = Any, what: str = "result") -> None:
        self._what = what
        self.annotation = annotation
        try:
            self._gaps = _decoder_gaps(annotation)
            decoder = msgspec.json.Decoder(annotation, dec_hook=_from_plain)
        except TypeError as error:
            raise Refused(
                f"{what}: {type_text(annotation)} cannot be stored as JSON: {error}"
            ) from error
        self._decode: Callable[[bytes], Any] = decoder.decode
        try:
            self._decode(b"null")
            self.may_be_none = True
        except msgspec.ValidationError:
            self.may_be_none = False

    def encode(self, value: Any) -> bytes:
        """The value as JSON; `Refused` if it is not of the annotated type, or cannot be stored."""
        what = self._what
        try:
            encoded = _encode(value)
            if len(encoded) > MOST_BODY_BYTES:
                _not_too_large(encoded, what)
            back = self._decode(encoded)
        except Refused:
            raise
        except Exception as error:
            path = what if isinstance(error, msgspec.ValidationError) else ""
            message = f"{path}: {_with_path(error)}" if path else f"{what}: {error}"
            raise Refused(fault_in(value, what) or message) from error
        if self._gaps.untyped:
            fault = change_in(value, back, what)
        elif (self._gaps.floats and b"null" in encoded) or (
            self._gaps.big_ints and _LONG_NUMBER.search(encoded) is not None
        ):
            fault = fault_in(value, what)
        else:
            return encoded
        if fault:
            raise Refused(fault)
        return encoded

    def decode(self, encoded: bytes) -> Any:
        """The value again, of the annotated type."""
        try:
            return self._decode(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(f"{self._what}: {_with_path(error)}") from error
