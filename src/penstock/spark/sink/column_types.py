"""Whether a column's Spark type fits a parameter's annotation, checked before any row is read.

SURE: no value but null can be wrong, so rows need no check. MAYBE: each row is decoded, as the
worker will. NO: the write is refused.
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
    # Spark types: annotations that fit surely, and those that may fit
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
            raise Refused(
                f"column {column}: {kind.simpleString()}: keys of a JSON object are strings"
            )
        check_storable(f"{column}{{}}", kind.valueType)
    elif isinstance(kind, spark.StructType):
        for field in kind.fields:
            check_storable(f"{column}.{field.name}", field.dataType)
    elif not isinstance(kind, (spark.NullType, *(leaf for leaves in _LEAVES for leaf in leaves))):
        raise Refused(
            f"column {column}: {kind.simpleString()} has no JSON form; cast it to another type"
        )


def fit(kind: spark.DataType, annotation: Any) -> Fit:
    """How well values of a column fit a parameter with this annotation."""
    return _fit(kind, inspect.type_info(_without_unset(annotation)))


def takes_none(annotation: Any) -> bool:
    """Whether the parameter accepts null."""
    return _takes_none(inspect.type_info(_without_unset(annotation)))


def _without_unset(annotation: Any) -> Any:
    """The annotation without UnsetType, which a parameter with a default has."""
    parts = typing.get_args(annotation)
    if UnsetType not in parts:
        return annotation
    union: Any = typing.Union
    return union[tuple(part for part in parts if part is not UnsetType)]


def _takes_none(target: inspect.Type) -> bool:
    if isinstance(target, inspect.UnionType):
        return any(_takes_none(part) for part in target.types)
    return isinstance(target, (inspect.AnyType, inspect.NoneType, inspect.CustomType))


def _fit(kind: spark.DataType, target: inspect.Type) -> Fit:
    if isinstance(target, inspect.Metadata):
        return _fit(kind, target.type)
    if isinstance(target, (inspect.AnyType, inspect.CustomType)):
        return Fit.SURE if isinstance(target, inspect.AnyType) else Fit.MAYBE
    if isinstance(target, inspect.UnionType):
        return max(_fit(kind, part) for part in target.types)
    if isinstance(kind, spark.NullType):
        return Fit.SURE if isinstance(target, inspect.NoneType) else Fit.NO
    if isinstance(kind, _NESTED):
        return _fit_nested(kind, target)
    return _fit_leaf(kind, target)


def _fit_leaf(kind: spark.DataType, target: inspect.Type) -> Fit:
    for kinds, (surely, perhaps) in _LEAVES.items():
        if isinstance(kind, kinds):
            if isinstance(target, surely):
                return _fit_bounds(kind, target)
            return Fit.MAYBE if isinstance(target, perhaps) else Fit.NO
    return Fit.NO


def _fit_bounds(kind: spark.DataType, target: inspect.Type) -> Fit:
    """The type fits; SURE unless the annotation restricts the values (ge, pattern, tz, ...)."""
    if isinstance(target, inspect.DateTimeType) and target.tz is not None:
        return Fit.SURE if target.tz is isinstance(kind, spark.TimestampType) else Fit.NO
    bounds = {
        name: getattr(target, name)
        for name in target.__struct_fields__
        if getattr(target, name) is not None
    }
    if isinstance(target, inspect.IntType) and (
        bounds.get("ge", SMALLEST_INT) <= SMALLEST_INT
        and bounds.get("le", LARGEST_INT) >= LARGEST_INT
    ):
        bounds = {name: bound for name, bound in bounds.items() if name not in {"ge", "le"}}
    return Fit.MAYBE if bounds else Fit.SURE


def _fit_nested(kind: spark.DataType, target: inspect.Type) -> Fit:
    inner = Fit.NO
    if isinstance(kind, spark.ArrayType):
        if isinstance(target, _LISTS):
            inner = _fit(kind.elementType, target.item_type)
        elif isinstance(target, inspect.TupleType):
            inner = Fit.MAYBE
    elif isinstance(kind, spark.MapType):
        if isinstance(target, inspect.DictType):
            inner = _fit(kind.valueType, target.value_type)
        elif isinstance(target, _OBJECTS):
            inner = Fit.MAYBE
    elif isinstance(kind, spark.StructType):
        inner = _fit_object(kind, target)
    # Never SURE: there may be nulls inside.
    return min(inner, Fit.MAYBE)


def _fit_object(kind: spark.StructType, target: inspect.Type) -> Fit:
    given = {field.name: field.dataType for field in kind.fields}
    if isinstance(target, inspect.DictType):
        return min((_fit(field, target.value_type) for field in given.values()), default=Fit.SURE)
    if not isinstance(target, _OBJECTS) or isinstance(target, inspect.NamedTupleType):
        return Fit.NO
    fits = [
        _fit(given[field.encode_name], field.type) if field.encode_name in given else Fit.NO
        for field in target.fields
        if field.required or field.encode_name in given
    ]
    return min(fits, default=Fit.SURE)
