"""The Spark type of a task's return annotation; string (the JSON text) where there is none."""

from __future__ import annotations

from typing import Any

from msgspec import inspect
from pyspark.sql import types

_LEAVES: dict[type[inspect.Type], types.DataType] = {
    inspect.BoolType: types.BooleanType(),
    inspect.IntType: types.LongType(),
    inspect.FloatType: types.DoubleType(),
    inspect.DecimalType: types.DecimalType(38, 18),
    inspect.BytesType: types.BinaryType(),
    inspect.DateType: types.DateType(),
    inspect.DateTimeType: types.TimestampType(),
}
_LISTS = (
    *(inspect.ListType, inspect.SetType, inspect.FrozenSetType),
    *(inspect.VarTupleType, inspect.CollectionType),
)
_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)


def type_of(annotation: Any) -> types.DataType:
    """The Spark type for values of this annotation."""
    return _type_of(inspect.type_info(annotation), frozenset())


def _type_of(kind: inspect.Type, above: frozenset[int]) -> types.DataType:
    if isinstance(kind, inspect.Metadata):
        return _type_of(kind.type, above)
    if isinstance(kind, inspect.UnionType):
        parts = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
        return _type_of(parts[0], above) if len(parts) == 1 else types.StringType()
    if isinstance(kind, _LISTS):
        return types.ArrayType(_type_of(kind.item_type, above))
    if isinstance(kind, inspect.DictType) and isinstance(kind.key_type, inspect.StrType):
        return types.MapType(types.StringType(), _type_of(kind.value_type, above))
    # A recursive type cannot be a column.
    if isinstance(kind, _OBJECTS) and id(kind) not in above:
        inside = above | {id(kind)}
        fields = [(field.encode_name, _type_of(field.type, inside)) for field in kind.fields]
        return types.StructType([types.StructField(*field) for field in fields])
    return _LEAVES.get(type(kind), types.StringType())
