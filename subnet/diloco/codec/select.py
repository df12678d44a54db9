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

Ints = NDArray[np.int64]

MAX_ROW = 2**16
_COLUMN_BITS = 16
_LARGEST = 2**31 - 1
_MASK = MAX_ROW - 1
# Groups per kept element that are searched for a lower bound of the k-th largest magnitude: more make it tighter.
_GROUPS = 4


def largest(bits_MS: Tensor, k: int) -> tuple[Ints, Ints]:
    """Columns and bits, int64 `[M, K]`, of the k largest of every row, largest first, at equality the first column.

    `bits_MS`: contiguous int32 of at most MAX_ROW columns, fp32 without their signs; integers order as magnitudes do.
    """
    rows, columns = bits_MS.shape
    candidates_MS = _candidates(bits_MS, k)
    flat = np.flatnonzero(candidates_MS)
    edges = np.searchsorted(flat, np.arange(rows + 1) * columns)
    counts_M = np.diff(edges)
    row = np.repeat(np.arange(rows), counts_M)
    keys_MP = np.full((rows, counts_M.max()), np.iinfo(np.int64).max)
    bits = bits_MS.numpy().reshape(-1)[flat].astype(np.int64)
    keys = ((_LARGEST - bits) << _COLUMN_BITS) | (flat - row * columns)
    keys_MP[row, np.arange(len(flat)) - edges[row]] = keys
    keys_MP.sort(axis=1)
    keys_MK = keys_MP[:, :k]
    return keys_MK & _MASK, _LARGEST - (keys_MK >> _COLUMN_BITS)


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
    poor_M = floor_M == 0
    candidates_MS = (bits_MS >= torch.from_numpy(np.maximum(floor_M, 1))[:, None]).numpy()
    # With too few above zero the first zeros are kept, which are among the first k columns.
    candidates_MS[poor_M, :k] = True
    return candidates_MS
