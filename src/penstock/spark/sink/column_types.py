"""Does a column fit a parameter: Spark's types beside the task's annotations, before any row.

"Sure" means that no value but null can be wrong, so that rows need not be looked at; "maybe" that
each row is decoded as the worker will; "no" refuses the write.
"""

from __future__ import annotations

import typing
from enum import IntEnum
from typing import Any

from msgspec import UnsetType, inspect
from pyspark.sql import types as spark

from penstock.enqueue.json_faults import LARGEST_INT, SMALLEST_INT
from penstock.errors import Refused


class Fit(IntEnum):
    NO = 0
    MAYBE = 1
    SURE = 2


_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_REAL = (spark.FloatType, spark.DoubleType)
_LEAVES: dict[tuple[type, ...], tuple[tuple[type, ...], tuple[type, ...]]] = {
    # Spark's types: what they surely are, and what they may be
    _WHOLE: (
        (inspect.IntType, inspect.FloatType, inspect.DecimalType),
        (inspect.EnumType, inspect.LiteralType),
    ),
    _REAL: ((inspect.FloatType,), (inspect.DecimalType,)),
    (spark.DecimalType,): ((inspect.DecimalType,), ()),
    (spark.BooleanType,): ((inspect.BoolType,), (inspect.LiteralType,)),
    (spark.BinaryType,): (
        (inspect.BytesType, inspect.ByteArrayType, inspect.MemoryViewType),
        (),
    ),
    (spark.DateType,): ((inspect.DateType,), ()),
    (spark.TimestampType, spark.TimestampNTZType): ((inspect.DateTimeType,), ()),
    (spark.DayTimeIntervalType,): ((inspect.TimeDeltaType,), ()),
    (spark.StringType, spark.CharType, spark.VarcharType): (
        (inspect.StrType,),
        (
            *(inspect.DateTimeType, inspect.DateType, inspect.TimeType, inspect.UUIDType),
            *(inspect.TimeDeltaType, inspect.DecimalType, inspect.BytesType),
            *(inspect.EnumType, inspect.LiteralType),
        ),
    ),
}
_NESTED = (spark.ArrayType, spark.MapType, spark.StructType)
_LISTS = (
    *(inspect.ListType, inspect.SetType, inspect.FrozenSetType),
    *(inspect.VarTupleType, inspect.CollectionType),
)
_OBJECTS = (
    *(inspect.StructType, inspect.DataclassType),
    *(inspect.TypedDictType, inspect.NamedTupleType),
)


def check_storable(column: str, kind: spark.DataType) -> None:
    """Refuse a type that has no JSON form, wherever in the column it is."""
    if isinstance(kind, spark.ArrayType):
        check_storable(f"{column}[]", kind.elementType)
    elif isinstance(kind, spark.MapType):
        if not isinstance(kind.keyType, (spark.StringType, *_WHOLE)):
            raise Refused(f"column {column}: {_text(kind)}: keys of a JSON object are texts")
        check_storable(f"{column}{{}}", kind.valueType)
    elif isinstance(kind, spark.StructType):
        for field in kind.fields:
            check_storable(f"{column}.{field.name}", field.dataType)
    elif not isinstance(kind, (spark.NullType, *(each for some in _LEAVES for each in some))):
        raise Refused(f"column {column}: {_text(kind)} has no JSON form; cast it to another type")


def fit(kind: spark.DataType, annotation: Any) -> Fit:
    """How well values of a column go into a parameter with this annotation."""
    return _fit(kind, inspect.type_info(_set(annotation)))


def takes_none(annotation: Any) -> bool:
    """Whether null is a value that the parameter can have."""
    return _takes_none(inspect.type_info(_set(annotation)))


def _set(annotation: Any) -> Any:
    """The annotation without "may be left out", which a parameter with a default has."""
    parts = typing.get_args(annotation)
    if UnsetType not in parts:
        return annotation
    union: Any = typing.Union
    return union[tuple(part for part in parts if part is not UnsetType)]


def _takes_none(wanted: inspect.Type) -> bool:
    if isinstance(wanted, inspect.UnionType):
        return any(_takes_none(part) for part in wanted.types)
    return isinstance(wanted, (inspect.AnyType, inspect.NoneType, inspect.CustomType))


def _fit(kind: spark.DataType, wanted: inspect.Type) -> Fit:
    if isinstance(wanted, inspect.Metadata):
        return _fit(kind, wanted.type)
    if isinstance(wanted, (inspect.AnyType, inspect.CustomType)):
        return Fit.SURE if isinstance(wanted, inspect.AnyType) else Fit.MAYBE
    if isinstance(wanted, inspect.UnionType):
        return max(_fit(kind, part) for part in wanted.types)
    if isinstance(kind, spark.NullType):
        return Fit.SURE if isinstance(wanted, inspect.NoneType) else Fit.NO
    if isinstance(kind, _NESTED):
        return _fit_nested(kind, wanted)
    return _fit_leaf(kind, wanted)


def _fit_leaf(kind: spark.DataType, wanted: inspect.Type) -> Fit:
    for sparks, (surely, perhaps) in _LEAVES.items():
        if isinstance(kind, sparks):
            if isinstance(wanted, surely):
                return _fit_bounds(kind, wanted)
            return Fit.MAYBE if isinstance(wanted, perhaps) else Fit.NO
    return Fit.NO


def _fit_bounds(kind: spark.DataType, wanted: inspect.Type) -> Fit:
    """Of the right type; but the annotation may bound the values."""
    if isinstance(wanted, inspect.DateTimeType) and wanted.tz is not None:
        return Fit.SURE if wanted.tz is isinstance(kind, spark.TimestampType) else Fit.NO
    bounds = {
        name: getattr(wanted, name)
        for name in wanted.__struct_fields__
        if getattr(wanted, name) is not None
    }
    if isinstance(wanted, inspect.IntType) and (
        bounds.get("ge", SMALLEST_INT) <= SMALLEST_INT
        and bounds.get("le", LARGEST_INT) >= LARGEST_INT
    ):
        bounds = {name: bound for name, bound in bounds.items() if name not in {"ge", "le"}}
    return Fit.MAYBE if bounds else Fit.SURE


def _fit_nested(kind: spark.DataType, wanted: inspect.Type) -> Fit:
    inner = Fit.NO
    if isinstance(kind, spark.ArrayType):
        if isinstance(wanted, _LISTS):
            inner = _fit(kind.elementType, wanted.item_type)
        elif isinstance(wanted, inspect.TupleType):
            inner = Fit.MAYBE
    elif isinstance(kind, spark.MapType):
        if isinstance(wanted, inspect.DictType):
            inner = _fit(kind.valueType, wanted.value_type)
        elif isinstance(wanted, _OBJECTS):
            inner = Fit.MAYBE
    elif isinstance(kind, spark.StructType):
        inner = _fit_object(kind, wanted)
    # Nulls inside are looked for row by row.
    return min(inner, Fit.MAYBE)


def _fit_object(kind: spark.StructType, wanted: inspect.Type) -> Fit:
    given = {field.name: field.dataType for field in kind.fields}
    if isinstance(wanted, inspect.DictType):
        return min((_fit(field, wanted.value_type) for field in given.values()), default=Fit.SURE)
    if not isinstance(wanted, _OBJECTS) or isinstance(wanted, inspect.NamedTupleType):
        return Fit.NO
    fits = [
        _fit(given[field.encode_name], field.type) if field.encode_name in given else Fit.NO
        for field in wanted.fields
        if field.required or field.encode_name in given
    ]
    return min(fits, default=Fit.SURE)


def _text(kind: spark.DataType) -> str:
    return kind.simpleString()
