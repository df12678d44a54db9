"""What int8 and int4 share: leaves cut into blocks of `block` elements, every block with a scale of its own.

Not a format: subclasses turn `[B, K]` rows of whole blocks into leaves and back. Blocks start anew at every leaf, so
rows of leaves that blocks do not fill are padded with zeros. Tensor suffixes: B blocks, K elements per block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from subnet.diloco.codec.base import CodecError, FixedSizeCodec, empty_vector, windows

Floats = NDArray[np.float32]

# A value whose magnitude is below TINY may become zero: scales would come near the denormals, which some machines
# flush. Nothing from HUGE on is encoded, and what decodes stays 0.7 % below, so that the mean of whatever decodes can
# always be encoded again.
TINY = np.float32(2.0**-100)
HUGE = np.float32(2.0**101)
# Elements whose leaves are made together, and elements multiplied at once: the temporaries of these many stay in a
# core's caches, and fewer would cost more calls.
_WINDOW = 2**20
_PIECE = 2**18


class Blockwise(FixedSizeCodec):
    """Cuts vectors into windows of leaves, and those into rows of one block each."""

    def __init__(self, block: int) -> None:
        """`block`: elements per scale; blocks start anew at every leaf."""
        if block < 1:
            raise ValueError(f"block must be at least 1 element, got {block}")
        self.block = block

    @abstractmethod
    def _encode_rows(self, rows_BK: Tensor, sizes: Sequence[int]) -> list[bytes]:
        """The leaves of `sizes` elements whose blocks are the rows, in order. Raises CodecError."""

    @abstractmethod
    def _decode_rows(self, leaves: Sequence[bytes], sizes: Sequence[int]) -> Rows:
        """What `_encode_rows` made of leaves of `sizes` elements, already of the right lengths. Raises CodecError."""

    def encode_leaves(self, x: Tensor, bounds: Sequence[int]) -> list[bytes]:
        self._check_values(x, bounds)
        leaves: list[bytes] = []
        for window in windows(bounds, _WINDOW):
            values = x[window[0] - bounds[0] : window[-1] - bounds[0]]
            runs = [self._padded(values[a:b], size) for a, b, size in self._runs(window)]
            rows_BK = runs[0] if len(runs) == 1 else torch.cat(runs)
            leaves += self._encode_rows(rows_BK, [b - a for a, b in pairwise(window)])
        return leaves

    def decode_leaves(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> Tensor:
        self._check_sizes(leaves, bounds)
        x = empty_vector(bounds[-1] - bounds[0])
        done = 0
        for window in windows(bounds, _WINDOW):
            first, done = done, done + len(window) - 1
            rows = self._decode_rows(leaves[first:done], [b - a for a, b in pairwise(window)])
            values = x[window[0] - bounds[0] : window[-1] - bounds[0]]
            block = 0
            for a, b, size in self._runs(window):
                after = block + (b - a) // size * self._blocks(size)
                if size == self.block:
                    rows.write(values[a:b].view(-1, self.block), block, after)
                else:
                    padded_BK = torch.empty(after - block, self.block)
                    rows.write(padded_BK, block, after)
                    values[a:b].view(-1, size).copy_(padded_BK.view((b - a) // size, -1)[:, :size])
                block = after
        return x

    def _runs(self, window: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Elements `(start, stop)` within the window of leaves of one `size`, or of whole blocks (`size` = block)."""
        first, size = window[0], 0
        for start, stop in pairwise(window):
            following = stop - start if (stop - start) % self.block else self.block
            if size not in (0, following):
                yield first - window[0], start - window[0], size
                first = start
            size = following
        yield first - window[0], window[-1] - window[0], size

    def _padded(self, x: Tensor, size: int) -> Tensor:
        """`[blocks, block]` of leaves of `size` elements: a view when blocks fill them, else a zero-padded copy."""
        if size != self.block:
            x = pad(x.view(-1, size), (0, -size % self.block))
        return x.view(-1, self.block)

    def _blocks(self, n: int) -> int:
        return -(-n // self.block)


class Rows(ABC):
    """Decoded blocks that are still to be multiplied: `codes` by the block and a `scale` each."""

    def __init__(self, scales_B: Floats) -> None:
        self._scales_B1 = torch.from_numpy(scales_B)[:, None]

    def write(self, out_BK: Tensor, start: int, stop: int) -> None:
        """The values of the blocks `[start, stop)` into `out_BK`: one IEEE multiply per element."""
        step = max(1, _PIECE // out_BK.shape[1])
        for a in range(start, stop, step):
            b = min(a + step, stop)
            out = out_BK[a - start : b - start]
            self._look_up(out, a, b)
            out.mul_(self._scales_B1[a:b])

    @abstractmethod
    def _look_up(self, out_BK: Tensor, start: int, stop: int) -> None:
        """The codes of the blocks `[start, stop)` as floats into `out_BK`."""


def extremes(rows_BK: Tensor) -> tuple[Floats, Floats]:
    """Of every block, its least and its greatest value. Raises CodecError for what is not finite, or HUGE."""
    low_B, high_B = rows_BK.amin(1).cpu().numpy(), rows_BK.amax(1).cpu().numpy()
    if not ((high_B < HUGE) & (low_B > -HUGE)).all():  # also false for NaN, which amax and amin hand on
        raise CodecError("a value is not finite, or too large to encode")
    return low_B, high_B


def quantised(rows_BK: Tensor, inverse_B: Floats) -> Iterator[tuple[int, NDArray[np.int8]]]:
    """Piece after piece, its first block and int8 `[B, K]` codes: one IEEE multiply each, rounded half to even."""
    inverse_B1 = torch.from_numpy(inverse_B).to(rows_BK.device)[:, None]
    step = max(1, _PIECE // rows_BK.shape[1])
    products_BK = torch.empty_like(rows_BK[:step])
    codes_BK = torch.empty(products_BK.shape, dtype=torch.int8, device=rows_BK.device)
    for first in range(0, len(rows_BK), step):
        piece_BK = rows_BK[first : first + step]
        count = len(piece_BK)
        torch.mul(piece_BK, inverse_B1[first : first + step], out=products_BK[:count]).round_()
        yield first, codes_BK[:count].copy_(products_BK[:count]).cpu().numpy()
