"""Int8: the block-wise absmax quantisation of 8-bit optimizers (Dettmers et al., arXiv 2110.02861, section 2).

Not their codebook: made linear, symmetric and exactly reproducible, since every element sees one IEEE multiply and one
rounding. Scales are made by IEEE divisions of numpy, on the CPU; torch divides a number by a tensor in two roundings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subnet.diloco.codec.base import CodecError
from subnet.diloco.codec.blockwise import TINY, Blockwise, Floats, Rows, extremes, quantised

_TOP = np.float32(127)
_MIN_SCALE = np.float32(2.0**-108)
_MAX_SCALE = np.float32(2.0**94)
_SCALE_BYTES = 4


class Int8(Blockwise):
    """A leaf of n elements is ceil(n / block) fp32 scales, then n int8 codes, little-endian; value = code * scale.

    scale = min(absmax / 127, 2^94) of its block, code = round_half_even(x * (127 / absmax)) in -127..127; a block with
    absmax < 2^-100 is all zero. The error is at most absmax / 254 per element, up to fp32 rounding (and 1 % of absmax
    from 2^94 * 127 up to 2^101, beyond which nothing is encoded).
    """

    name = "int8"

    def encoded_size(self, n: int) -> int:
        return self._blocks(n) * _SCALE_BYTES + n

    def _encode_rows(self, rows_BK: Tensor, sizes: Sequence[int]) -> list[bytes]:
        low_B, high_B = extremes(rows_BK)
        absmax_B = np.maximum(high_B, -low_B)
        alive_B = absmax_B >= TINY
        divisor_B = np.where(alive_B, absmax_B, np.float32(1))
        scales_B = np.where(alive_B, np.minimum(absmax_B / _TOP, _MAX_SCALE), np.float32(0))
        codes_BK = np.empty(rows_BK.shape, np.int8)
        for first, piece_BK in quantised(rows_BK, np.where(alive_B, _TOP / divisor_B, np.float32(0))):
            codes_BK[first : first + len(piece_BK)] = piece_BK
        scale_bytes, code_bytes = scales_B.data.cast("B"), codes_BK.data.cast("B")
        leaves, block = [], 0
        for n in sizes:
            after, first = block + self._blocks(n), block * self.block
            scales = scale_bytes[block * _SCALE_BYTES : after * _SCALE_BYTES]
            leaves.append(b"".join((scales, code_bytes[first : first + n])))
            block = after
        return leaves

    def _decode_rows(self, leaves: Sequence[bytes], sizes: Sequence[int]) -> Rows:
        scales: list[memoryview] = []
        codes: list[memoryview | bytes] = []
        for leaf, n in zip(leaves, sizes, strict=True):
            edge = self._blocks(n) * _SCALE_BYTES
            scales.append(memoryview(leaf)[:edge])
            codes += (memoryview(leaf)[edge:], bytes(-n % self.block))
        scales_B = np.frombuffer(bytearray().join(scales), np.float32)
        if not ((scales_B == 0) | ((scales_B >= _MIN_SCALE) & (scales_B <= _MAX_SCALE))).all():
            raise CodecError("a scale is not finite or out of range")
        codes_BK = np.frombuffer(bytearray().join(codes), np.int8).reshape(-1, self.block)
        return _Codes(scales_B, codes_BK)


class _Codes(Rows):
    def __init__(self, scales_B: Floats, codes_BK: NDArray[np.int8]) -> None:
        super().__init__(scales_B)
        self._codes_BK = torch.from_numpy(codes_BK)
        if int(self._codes_BK.min()) < -_TOP:
            raise CodecError("a code is out of range")

    def _look_up(self, out_BK: Tensor, start: int, stop: int) -> None:
        out_BK.copy_(self._codes_BK[start:stop])
