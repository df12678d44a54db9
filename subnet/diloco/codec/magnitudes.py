"""Two magnitudes for the kept elements of a chunk: which are high, which low, and both in a header of 16 bits.

The best split of a chunk's magnitudes in two (Otsu 1979: least squares in one dimension), on 12-bit integers: sums are
exact, the rest are single IEEE operations on fp64, equals go together. Suffixes: M chunks, K kept elements of each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subnet.diloco.codec.base import CodecError
from subnet.diloco.codec.select import MAGNITUDE, Ints

Headers = NDArray[np.uint16]

HEADER_BYTES = 2
# Bits of fp32 magnitudes: 2^-90, below which a chunk is zero (its low magnitude would come near the denormals), and
# 2^101, from which on nothing is encoded. At most 2^100 decodes, so the mean of whatever decodes can be encoded again.
TINY_BITS = (127 - 90) << 23
HUGE_BITS = (127 + 101) << 23
# A header is `high << 4 | ratio`. high counts fp32 magnitudes with 4 bits of mantissa from 2^-90 = 1 to 2^100; 0 is a
# chunk of zeros. The low magnitude is ratio / 16 of the high one.
_SHIFT = 19
_BASE = (TINY_BITS >> _SHIFT) - 1
_MAX_HIGH = (((127 + 100) << 23) >> _SHIFT) - _BASE
_RATIOS = 16
# The largest magnitude of a chunk is between 2^11 and 2^12 of its integers.
_INTEGER_BITS = 12
_MANTISSA_BITS = 23
# Biased exponents: of 2^(11 - e) that of e is to be taken from, and the largest of a number.
_UNIT_EXPONENT = np.int32(2 * 127 + _INTEGER_BITS - 1)
_MAX_EXPONENT = np.int32(254)


def split(ranked_MK: Ints) -> tuple[Headers, Ints]:
    """Header of every chunk, and the bits from which on its magnitudes are high (none is, where MAGNITUDE).

    `ranked_MK`: bits of fp32 magnitudes, falling; of a chunk all are zero, or the first is from TINY to below HUGE.
    """
    kept = ranked_MK.shape[1]
    exponent_M = ranked_MK[:, 0] >> _MANTISSA_BITS
    # Times 2^(11 - e), which is exact or below 1 and then 0; a chunk of zeros has an exponent of none.
    scale_M = (np.minimum(_UNIT_EXPONENT - exponent_M, _MAX_EXPONENT) << _MANTISSA_BITS).view(np.float32)
    integers_MK = (ranked_MK.view(np.float32) * scale_M[:, None]).astype(np.int32)
    sums_MK = np.cumsum(integers_MK, axis=1, dtype=np.int32)
    total_M = sums_MK[:, -1]
    rows_M = np.arange(len(ranked_MK))
    last_M = _gains(sums_MK).argmax(axis=1) if kept > 1 else np.zeros_like(rows_M)
    n_high_M = np.count_nonzero(integers_MK >= integers_MK[rows_M, last_M][:, None], axis=1)
    # Zeros stay zero: where some are kept, they are the low ones.
    has_zero_M = ranked_MK[:, -1] == 0
    if has_zero_M.any():
        n_high_M[has_zero_M] = np.count_nonzero(ranked_MK[has_zero_M], axis=1)
    sum_high_M = sums_MK[rows_M, n_high_M - 1]
    mean_M = (sum_high_M / np.maximum(n_high_M, 1)).astype(np.float32)
    unit_M = exponent_M.astype(np.int64) - (127 + _INTEGER_BITS - 1)
    rounded_M = ((mean_M.view(np.int32).astype(np.int64) + (1 << (_SHIFT - 1))) >> _SHIFT) - _BASE
    high_M = np.minimum(np.maximum(rounded_M + (unit_M << (_MANTISSA_BITS - _SHIFT)), 1), _MAX_HIGH)
    step_M = np.ldexp(_magnitudes(high_M).astype(np.float64), -unit_M) / _RATIOS
    mean_low_M = (total_M - sum_high_M) / np.maximum(kept - n_high_M, 1)
    ratio_M = np.minimum(np.maximum(np.rint(mean_low_M / step_M), 1), _RATIOS - 1).astype(np.int64)
    ratio_M[(n_high_M == kept) | has_zero_M] = 0
    headers_M = np.where(n_high_M > 0, (high_M << 4) | ratio_M, 0).astype(np.uint16)
    return headers_M, np.where(n_high_M > 0, ranked_MK[rows_M, n_high_M - 1], MAGNITUDE)


def _gains(sums_MK: Ints) -> NDArray[np.float64]:
    """What splitting after the first, the second, ... takes off the squared error, up to a factor of the chunk."""
    kept = sums_MK.shape[1]
    counts_K = np.arange(1.0, kept)
    excess_MK = sums_MK[:, :-1] * np.float64(kept)
    excess_MK -= sums_MK[:, -1:] * counts_K
    excess_MK *= excess_MK
    excess_MK *= 1.0 / (counts_K * (kept - counts_K))
    return excess_MK


def values(headers_M: Headers, flags_MK: Ints, columns_MK: Ints) -> NDArray[np.float32]:
    """The kept elements, fp32 `[M, K]`, in the order of their columns. Flags: 1 high, 2 negative.

    Raises CodecError for what no chunk is encoded to: headers that do not fit the flags, negative zeros, and zeros that
    are not the first ones of their chunk.
    """
    kept = flags_MK.shape[1]
    high_M, ratio_M = (headers_M >> 4).astype(np.int64), headers_M & (_RATIOS - 1)
    n_high_M = (flags_MK & 1).sum(axis=1)
    wrong_M = (high_M > _MAX_HIGH) | ((high_M > 0) != (n_high_M > 0))
    # Without low magnitudes, or where they are zeros, the ratio is 0.
    wrong_M |= (ratio_M > 0) & ((n_high_M == kept) | (n_high_M == 0))
    if wrong_M.any():
        raise CodecError("a chunk's header does not fit its elements")
    poor_M = (ratio_M == 0) & (n_high_M < kept)
    if poor_M.any():
        is_zero = flags_MK[poor_M] & 1 == 0
        if (is_zero & ((flags_MK[poor_M] > 0) | (columns_MK[poor_M] != np.arange(kept)))).any():
            raise CodecError("a zero is negative, or not the first that could be kept")
    magnitudes_M = _magnitudes(high_M)
    low_M = magnitudes_M * (ratio_M.astype(np.float32) / np.float32(_RATIOS))
    table_M4 = np.stack((low_M, magnitudes_M, -low_M, -magnitudes_M), axis=1)
    return table_M4.reshape(-1)[flags_MK + 4 * np.arange(len(flags_MK), dtype=np.int32)[:, None]]


def _magnitudes(high_M: NDArray[np.int64]) -> NDArray[np.float32]:
    """fp32 of the headers' high magnitudes."""
    return np.where(high_M > 0, ((high_M + _BASE) << _SHIFT).astype(np.int32).view(np.float32), np.float32(0))
