"""Exact Q31.32 fixed-point arithmetic on numpy int64, as Subtensor's I32F32 computes it.

Not a number type: values are plain int64 scaled by 2**32, and each function says what ranges it takes.
Multiplication and division round towards minus infinity, like the runtime's `saturating_mul` and `safe_div`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Q32 = npt.NDArray[np.int64]
"""Array of int64 holding value * 2**32."""

FRACTION_BITS = 32
ONE = 1 << FRACTION_BITS
U16_MAX = 0xFFFF


def multiply(a: Q32, b: Q32) -> Q32:
    """Elementwise floor(a * b) in Q32. Takes 0 <= a <= 2**33 and |b| <= 2**33; broadcasts."""
    high, low = a >> 16, a & 0xFFFF
    return (high * b + ((low * b) >> 16)) >> 16


def divide(a: Q32, b: Q32) -> Q32:
    """Elementwise floor(a / b) in Q32; `a` where b is 0. Takes 0 <= a, 0 <= b < 2**47, a / b < 2**31; broadcasts."""
    zero = b == 0
    divisor = np.where(zero, 1, b)
    whole, rest = np.divmod(a, divisor)
    upper, rest = np.divmod(rest << 16, divisor)
    lower = (rest << 16) // divisor
    return np.where(zero, a, (whole << 32) + (upper << 16) + lower)


def from_u16(x: npt.ArrayLike) -> Q32:
    """Map u16 0..65535 to the proportion 0..1: floor(x * 2**32 / 65535)."""
    return (np.asarray(x, dtype=np.int64) << FRACTION_BITS) // U16_MAX


def to_u16(x: Q32) -> npt.NDArray[np.uint16]:
    """Map a proportion 0..1 to floor(x * 65535), saturating at 65535."""
    return np.minimum((x * U16_MAX) >> FRACTION_BITS, U16_MAX).astype(np.uint16)


def normalize(x: Q32) -> Q32:
    """Divide a vector by its sum; unchanged where the sum is 0."""
    return divide(x, x.sum())


def normalize_rows(x: Q32) -> Q32:
    """Divide each row of a matrix by its sum; rows of zeros stay zero."""
    return divide(x, x.sum(axis=1, keepdims=True))


def normalize_columns(x: Q32) -> Q32:
    """Divide each column of a matrix by its sum; columns of zeros stay zero."""
    return divide(x, x.sum(axis=0, keepdims=True))
