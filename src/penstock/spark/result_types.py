"""What a task returns as a type of Spark; anything without one is its JSON, as text."""

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
    """The type of a column that holds what is annotated so."""
    return _type_of(inspect.type_info(annotation), frozenset())


def _type_of(wanted: inspect.Type, above: frozenset[int]) -> types.DataType:
    if isinstance(wanted, inspect.Metadata):
        return _type_of(wanted.type, above)
    if isinstance(wanted, inspect.UnionType):
        parts = [part for part in wanted.types if not isinstance(part, inspect.NoneType)]
        return _type_of(parts[0], above) if len(parts) == 1 else types.StringType()
    if isinstance(wanted, _LISTS):
        return types.ArrayType(_type_of(wanted.item_type, above))
    if isinstance(wanted, inspect.DictType) and isinstance(wanted.key_type, inspect.StrType):
        return types.MapType(types.StringType(), _type_of(wanted.value_type, above))
    # One that holds itself cannot be a column.
    if isinstance(wanted, _OBJECTS) and id(wanted) not in above:
        inside = above | {id(wanted)}
        fields = [(field.encode_name, _type_of(field.type, inside)) for field in wanted.fields]
        return types.StructType([types.StructField(*field) for field in fields])
    return _LEAVES.get(type(wanted), types.StringType())
