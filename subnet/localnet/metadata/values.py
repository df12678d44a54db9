"""SCALE bytes of the constants and storage defaults, from plain Python values and declared types.

Values have the shape ``bittensor_core.Runtime.decode`` gives, so a default equals what a reader of an absent item
gets. Not a decoder, and not for values from strangers: the tables are ours.
"""

from __future__ import annotations

from typing import Any

import bittensor_core

from subnet.localnet.metadata import scale
from subnet.localnet.metadata.grammar import PRIMITIVES, Array, Enum, Expr, Field, Named, Struct, Tuple
from subnet.localnet.metadata.registry import TypeTable


def zero(types: TypeTable, expression: Expr) -> Any:
    """What Substrate's ``Default`` gives: zeros, empty lists, the first variant, the all-zero account."""
    expression = types.resolve(expression)
    if isinstance(expression, Tuple):
        return tuple(zero(types, item) for item in expression.items)
    if isinstance(expression, Array):
        if _is_u8(types, expression.item):
            return "0x" + bytes(expression.length).hex()
        return [zero(types, expression.item)] * expression.length
    if expression.name == "bool":
        return False
    if expression.name == "str":
        return ""
    if expression.name in PRIMITIVES:
        return 0
    if expression.name == "AccountId32":
        return bittensor_core.ss58_encode(bytes(32), 42)
    if expression.name == "Option":
        return None
    if expression.name == "BTreeMap":
        return {}
    if expression.name == "Vec":
        return "" if _is_u8(types, expression.args[0]) else []
    if expression.name == "Compact":
        return zero(types, expression.args[0])
    definition = types.lookup(expression)
    if isinstance(definition, Struct):
        return _struct_zero(types, definition.fields)
    assert isinstance(definition, Enum)
    first = definition.variants[0]
    return first.name if not first.fields else {first.name: _struct_zero(types, first.fields)}


def encode(types: TypeTable, expression: Expr, value: Any) -> bytes:
    """SCALE bytes of ``value``; ValueError, TypeError or OverflowError when it is not of the type."""
    expression = types.resolve(expression)
    if isinstance(expression, Tuple):
        return b"".join(encode(types, item, part) for item, part in zip(expression.items, value, strict=True))
    if isinstance(expression, Array):
        if _is_u8(types, expression.item):
            return _raw(value, expression.length)
        return b"".join(encode(types, expression.item, part) for part in _counted(value, expression.length))
    if expression.name == "bool":
        return scale.u8(int(value))
    if expression.name == "str":
        return scale.text(value)
    if expression.name in PRIMITIVES:
        return scale.integer(value, int(expression.name[1:]), signed=expression.name[0] == "i")
    if expression.name == "AccountId32":
        return bytes(bittensor_core.ss58_decode(value))
    if expression.name == "Option":
        return scale.option(None if value is None else encode(types, expression.args[0], value))
    if expression.name == "Compact":
        return scale.compact(value)
    if expression.name == "BTreeMap":
        key, item = expression.args
        pairs = sorted((encode(types, key, name), encode(types, item, held)) for name, held in value.items())
        return scale.vec(pairs, b"".join)
    if expression.name == "Vec":
        if _is_u8(types, expression.args[0]):
            return scale.blob(_raw(value))
        return scale.vec(value, lambda part: encode(types, expression.args[0], part))
    definition = types.lookup(expression)
    if isinstance(definition, Struct):
        return _fields(types, definition.fields, value)
    assert isinstance(definition, Enum)
    name, inner = (value, {}) if isinstance(value, str) else next(iter(value.items()))
    variant = next((v for v in definition.variants if v.name == name), None)
    if variant is None:
        raise ValueError(f"{expression} has no variant {name!r}")
    return scale.u8(variant.index) + (_fields(types, variant.fields, inner) if variant.fields else b"")


def _fields(types: TypeTable, fields: tuple[Field, ...], value: Any) -> bytes:
    if len(fields) == 1 and fields[0].name is None:
        return encode(types, fields[0].type, value)
    if fields and fields[0].name is not None:
        return b"".join(encode(types, f.type, value[f.name]) for f in fields)
    return b"".join(encode(types, f.type, part) for f, part in zip(fields, value, strict=True))


def _struct_zero(types: TypeTable, fields: tuple[Field, ...]) -> Any:
    if len(fields) == 1 and fields[0].name is None:
        return zero(types, fields[0].type)
    if fields and fields[0].name is not None:
        return {f.name: zero(types, f.type) for f in fields}
    return tuple(zero(types, f.type) for f in fields)


def _is_u8(types: TypeTable, expression: Expr) -> bool:
    return types.resolve(expression) == Named("u8")


def _raw(value: str | bytes, length: int | None = None) -> bytes:
    data = bytes.fromhex(value[2:]) if isinstance(value, str) and value.startswith("0x") else value
    raw = data.encode() if isinstance(data, str) else bytes(data)
    if length is not None and len(raw) != length:
        raise ValueError(f"expected {length} bytes, got {len(raw)}")
    return raw


def _counted(value: Any, length: int) -> Any:
    if len(value) != length:
        raise ValueError(f"expected {length} items, got {len(value)}")
    return value
