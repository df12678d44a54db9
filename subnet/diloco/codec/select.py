"""The k largest magnitudes of every row, the same ones on every machine.

Not `torch.topk`, whose choice among equals depends on the device and the number of threads. Here magnitudes are the
integers of their bits, and of equal ones the first are taken: any correct sort gives one answer.
Tensor suffixes: M rows, S elements per row, C candidates of all rows, P of one row at most, K kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int32]

MAX_ROW = 2**16
MAGNITUDE = np.int32(2**31 - 1)
"""The bits of an fp32 without its sign."""
# Groups per kept element that are searched for a lower bound of the k-th largest magnitude: more make it tighter.
_GROUPS = 4
# Bits of 2^-100 in bf16. Near the denormals, which some machines round to zero, the rounded ones are not relied on.
_LEAST_FLOOR = np.int16((127 - 100) << 7)
# Elements whose candidates are sought at once: the temporaries of these many stay in a core's cache.
_PIECE = 2**19


class Largest(NamedTuple):
    """What is kept of every row, int32 `[M, K]`."""

    columns_MK: Ints
    """Where, in rising order."""
    bits_MK: Ints
    """fp32 bits at these columns."""
    ranked_MK: Ints
    """Bits of the same elements' magnitudes, in falling order."""


def largest(x_MS: Tensor, k: int) -> Largest:
    """The k largest magnitudes of every row; among equals those of the first columns.

    `x_MS`: fp32 on the CPU, of at most MAX_ROW columns. Bits without the sign order as magnitudes do. Where a row has a
    NaN, one is ranked first; which others are found is not defined.
    """
    rows, columns = x_MS.shape
    place_C, bits_C = _candidates(x_MS, k)
    magnitudes_C = bits_C & MAGNITUDE
    counts_M = np.diff(place_C.searchsorted(np.arange(rows + 1) * columns))
    # Behind a row's candidates is -1, below any magnitude.
    real_MP = np.arange(counts_M.max(), dtype=np.int32) < counts_M.astype(np.int32)[:, None]
    magnitudes_MP = np.full(real_MP.shape, -1, np.int32)
    magnitudes_MP[real_MP] = magnitudes_C
    ranked_MP = np.sort(magnitudes_MP, axis=1)
    least_M = ranked_MP[:, -k]
    kept_C = magnitudes_C >= np.repeat(least_M, counts_M)
    if np.count_nonzero(kept_C) > rows * k:
        kept_C = _without_surplus(magnitudes_MP, least_M, k)[real_MP]
    which = np.flatnonzero(kept_C)
    places_MK = place_C.take(which).reshape(rows, k)
    columns_MK = (places_MK - np.arange(rows)[:, None] * columns).astype(np.int32)
    return Largest(columns_MK, bits_C.take(which).reshape(rows, k), np.ascontiguousarray(ranked_MP[:, : -k - 1 : -1]))


def _without_surplus(magnitudes_MP: Ints, least_M: Ints, k: int) -> NDArray[np.bool_]:
    """Which candidates are kept, `[M, P]`, where more than k are at least the k-th largest: the last equals are not."""
    above_MP = magnitudes_MP > least_M[:, None]
    equal_MP = magnitudes_MP == least_M[:, None]
    wanted_M = k - np.count_nonzero(above_MP, axis=1)
    return above_MP | (equal_MP & (np.cumsum(equal_MP, axis=1, dtype=np.int32) <= wanted_M[:, None]))


def _candidates(x_MS: Tensor, k: int) -> tuple[NDArray[np.int64], Ints]:
    """Where in the flat `x_MS` a superset of every row's k largest is, in order, and its bits; rarely much more.

    It is sought among magnitudes rounded to bf16, half the memory. Rounding keeps the order, so that whatever is among
    the k largest is not below the k-th largest of them.
    """
    rows, columns = x_MS.shape
    depth = max(1, columns // (_GROUPS * k))
    width = columns // depth * depth
    step = max(1, _PIECE // columns)
    rounded_MS = torch.empty((min(step, rows), columns), dtype=torch.bfloat16)
    found_MS = np.empty(rounded_MS.shape, np.bool_)
    places, bits = [], []
    for first in range(0, rows, step):
        piece_MS = x_MS[first : first + step]
        count = len(piece_MS)
        whole_MS = piece_MS.numpy().view(np.int32)
        halves_MS = rounded_MS[:count].copy_(piece_MS).abs_().view(torch.int16)
        maxima_MG = halves_MS[:, :width].reshape(count, depth, -1).amax(1).numpy()
        if width < columns:
            maxima_MG = np.concatenate((maxima_MG, halves_MS[:, width:].numpy()), axis=1)
        # k groups reach the k-th largest of the maxima, so at least k elements do.
        floor_M = np.partition(maxima_MG, -k, axis=1)[:, -k]
        # Two passes, since numpy compares with one number several times faster than with one per row.
        halves_MS -= torch.from_numpy(floor_M)[:, None]
        np.greater_equal(halves_MS.numpy(), 0, out=found_MS[:count])
        vague_M = np.flatnonzero(floor_M < _LEAST_FLOOR)
        if len(vague_M):
            # With too few above zero the first zeros are kept, which are among the first k columns.
            found_MS[vague_M] = whole_MS[vague_M] & MAGNITUDE > 0
            found_MS[vague_M, :k] = True
        place_C = _true_places(found_MS[:count])
        places.append(place_C + first * columns)
        bits.append(whole_MS.reshape(-1).take(place_C))
    return np.concatenate(places), np.concatenate(bits)


def _true_places(flags_MS: NDArray[np.bool_]) -> NDArray[np.int64]:
    """`np.flatnonzero` of few among many: only words of eight flags that are not all false are looked into."""
    if flags_MS.size % 8:
        return np.flatnonzero(flags_MS)
    words = flags_MS.reshape(-1).view(np.uint64)
    which = np.flatnonzero(words != 0)
    inner = np.flatnonzero(words.take(which).view(np.bool_))
    return (which << 3).take(inner >> 3) + (inner & 7)
