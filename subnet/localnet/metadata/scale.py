"""Writers for the SCALE building blocks that metadata is made of.

Only what the metadata encoders need: compacts, integers, text, options, length-prefixed lists. Not a codec for chain
values (values.py) and not a reader: ``bittensor_core.Runtime`` decodes. Format: the SCALE codec of Parity Substrate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def compact(value: int) -> bytes:
    """Compact encoding of an unsigned integer below 2**536.

    Raises:
        ValueError: the value is negative or too large.
    """
    if value < 0:
        raise ValueError(f"a compact integer cannot be negative: {value}")
    if value < 1 << 6:
        return (value << 2).to_bytes(1, "little")
    if value < 1 << 14:
        return (value << 2 | 1).to_bytes(2, "little")
    if value < 1 << 30:
        return (value << 2 | 2).to_bytes(4, "little")
    length = max(4, (value.bit_length() + 7) // 8)
    if length > 67:
        raise ValueError(f"a compact integer has at most 536 bits, this one has {value.bit_length()}")
    return ((length - 4) << 2 | 3).to_bytes(1, "little") + value.to_bytes(length, "little")


def integer(value: int, bits: int, signed: bool = False) -> bytes:
    """Fixed-width little-endian integer; OverflowError when it does not fit."""
    return value.to_bytes(bits // 8, "little", signed=signed)


def u8(value: int) -> bytes:
    return integer(value, 8)


def u32(value: int) -> bytes:
    return integer(value, 32)


def blob(data: bytes) -> bytes:
    """``Vec<u8>``: compact length, then the bytes."""
    return compact(len(data)) + data


def text(value: str) -> bytes:
    return blob(value.encode())


def option(encoded: bytes | None) -> bytes:
    return b"\x00" if encoded is None else b"\x01" + encoded


def vec(items: Iterable[T], encode: Callable[[T], bytes]) -> bytes:
    encoded = [encode(item) for item in items]
    return compact(len(encoded)) + b"".join(encoded)
