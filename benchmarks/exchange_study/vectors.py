"""What the peers average: flat fp32 vectors that look like pseudo-gradients, and how far a result is from their mean.

Not data of a real run. Half of every vector is common to all peers, the magnitudes differ from row to row by orders,
as those of a model's tensors do.
"""

from __future__ import annotations

import math

import torch

ROW = 4096
"""Elements with one magnitude."""
SCALE = 2e-3
"""Root mean square of a vector, about: that of one inner step."""
_PIECE = 2**22


def vector(size: int, peer: int, round_: int) -> torch.Tensor:
    """What `peer` contributes in `round_`, fp32 `[size]`. Rounds differ by a factor only, so that all are as hard."""
    common, own = _generator(0), _generator(1 + peer)
    magnitudes = torch.randn(-(-size // ROW), generator=_generator(-1)).exp_()
    x = torch.empty(size)
    for start in range(0, size, _PIECE):
        piece = x[start : start + _PIECE]
        torch.randn(len(piece), generator=common, out=piece)
        piece += torch.randn(len(piece), generator=own)
    rows = x.split(ROW)
    for row, magnitude in zip(rows, magnitudes.tolist(), strict=True):
        row.mul_(magnitude)
    return x.mul_(SCALE / 3.8 * (1 + round_ / 64))  # 3.8 is sqrt(2) e, the rms of all that


def mean(size: int, peers: int, round_: int) -> torch.Tensor:
    """The exact mean of all the peers' vectors, fp64 `[size]`."""
    total = torch.zeros(size, dtype=torch.float64)
    for peer in range(peers):
        total += vector(size, peer, round_)
    return total / peers


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """L2 distance of the two, against the length of `exact`."""
    pieces = zip(result.split(_PIECE), exact.split(_PIECE), strict=True)
    off = sum(float((a.double() - b).square().sum()) for a, b in pieces)
    return math.sqrt(off / float(exact.square().sum()))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(38_000 + seed)
