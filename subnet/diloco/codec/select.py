"""The k largest magnitudes of every row, the same ones on every machine.

Not `torch.topk`, whose choice among equals depends on the device and the number of threads. Here elements are ranked by
integers made of their magnitudes' bits and their columns, no two of which are equal: any correct sort gives one answer.
Tensor suffixes: M rows, S elements per row, P candidates per row, K kept.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int32]

MAX_ROW = 2**16
_COLUMN_BITS = 16
_MAGNITUDE = 2**31 - 1
# Groups per kept element that are searched for a lower bound of the k-th largest magnitude: more make it tighter.
_GROUPS = 4
# Elements whose candidates are sought at once: the temporaries of these many stay in a core's cache.
_PIECE = 2**19


def largest(x_MS: Tensor, k: int) -> tuple[Ints, Ints, Ints]:
    """Columns, magnitudes' bits and signs (1: negative), int32 `[M, K]`, of the k largest of every row, those first.

    Among equals the first columns are taken. `x_MS`: fp32 on the CPU, of at most MAX_ROW columns. Bits without the sign
    order as magnitudes do, NaN above all.
    """
    rows, columns = x_MS.shape
    step = max(1, _PIECE // columns)
    scratch_MS = torch.empty((min(step, rows), columns), dtype=torch.int32)
    places, bits = [], []
    for first in range(0, rows, step):
        piece_MS = x_MS[first : first + step].view(torch.int32)
        bits_MS = torch.bitwise_and(piece_MS, _MAGNITUDE, out=scratch_MS[: len(piece_MS)])
        places.append(_true_places(_candidates(bits_MS, k)))
        bits.append(piece_MS.numpy().reshape(-1)[places[-1]])
        places[-1] += first * columns
    place, bit = np.concatenate(places), np.concatenate(bits)
    first_M = np.arange(rows + 1) * columns
    edges = np.searchsorted(place, first_M)
    counts_M = np.diff(edges)
    column = place - np.repeat(first_M[:-1], counts_M)
    magnitude = (bit & _MAGNITUDE).astype(np.int64)
    keys = ((_MAGNITUDE - magnitude) << (_COLUMN_BITS + 1)) | (column << 1) | (bit < 0)
    width = int(counts_M.max())
    keys_MP = np.full((rows, width), np.iinfo(np.int64).max)
    shift_M = np.arange(rows) * width - edges[:-1]
    keys_MP.reshape(-1)[np.arange(len(keys)) + np.repeat(shift_M, counts_M)] = keys
    keys_MP.sort(axis=1)
    keys_MK = keys_MP[:, :k]
    low_MK = keys_MK.astype(np.int32)
    bits_MK = _MAGNITUDE - (keys_MK >> (_COLUMN_BITS + 1)).astype(np.int32)
    return (low_MK >> 1) & (MAX_ROW - 1), bits_MK, low_MK & 1


def _candidates(bits_MS: Tensor, k: int) -> NDArray[np.bool_]:
    """A superset of the k largest, bool `[M, S]`: rarely much more than those, unless many are equal."""
    rows, columns = bits_MS.shape
    depth = max(1, columns // (_GROUPS * k))
    width = columns // depth * depth
    maxima_MG = bits_MS[:, :width].reshape(rows, depth, -1).amax(1).numpy()
    if width < columns:
        maxima_MG = np.concatenate((maxima_MG, bits_MS[:, width:].numpy()), axis=1)
    # k groups reach the k-th largest of the maxima, so at least k elements do.
    floor_M = np.partition(maxima_MG, -k, axis=1)[:, -k]
    candidates_MS = bits_MS.numpy() >= np.maximum(floor_M, 1)[:, None]
    # With too few above zero the first zeros are kept, which are among the first k columns.
    candidates_MS[floor_M == 0, :k] = True
    return candidates_MS


def _true_places(flags_MS: NDArray[np.bool_]) -> NDArray[np.int64]:
    """`np.flatnonzero` of few among many: only words of eight flags that are not all false are looked into."""
    if flags_MS.size % 8:
        return np.flatnonzero(flags_MS)
    words = flags_MS.reshape(-1).view(np.uint64)
    which = np.flatnonzero(words != 0)
    inner = np.flatnonzero(words[which].view(np.bool_))
    return which[inner >> 3] * 8 + (inner & 7)
