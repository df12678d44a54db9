"""Int4: 16 unequal levels per element, a byte of scale per block, one fp32 scale per leaf.

Not NF4 (Dettmers et al., arXiv 2305.14314), whose levels are equally likely: these are least-squares ones (Lloyd 1957)
for blocks divided by their signed largest value (as BOF4-S, arXiv 2505.06653), fitted to real pseudo-gradients.
Elements see one IEEE multiply and one rounding, then look-ups in integer tables. Tensor suffixes as in `blockwise`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from subnet.diloco.codec.base import CodecError
from subnet.diloco.codec.blockwise import TINY, Blockwise, Floats, Rows, extremes, quantised

LEVELS = (0, 12, 24, 36, 50, 65, 82, 103, 128, -113, -89, -70, -53, -39, -25, -12)
"""What a code of 0..15 stands for, in 128ths of its block's scale: zero is exact, a block's largest value near 128."""
_UNIT = np.float32(128)
_GRID = np.float32(112)
"""Steps per scale of the grid on which the nearest level is looked up: scales are rounded down by up to 9/8, and 9/8 of
112 still fits int8."""
_MAX_SCALE = np.float32(2.0**100)
_SCALE_BYTES = 4
# The scale of a block as a share of its leaf's: the upper bits of an fp32, sign, and 4 of exponent and 3 of mantissa.
# Share 1, whose upper bits are 1016, is code 127.
_SHIFT = np.int32(20)
_SHARE_0 = 1016 - 127
_NEGATIVE = 128


def _nearest_levels() -> NDArray[np.uint8]:
    """Code of every grid step, int8 read as uint8: the nearest level, of two equally near the one nearer to zero."""
    steps_S = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int32)
    order = np.argsort(np.abs(LEVELS), kind="stable")
    distances_SL = np.abs(steps_S[:, None] * int(_UNIT) - np.array(LEVELS)[order] * int(_GRID))
    return order[distances_SL.argmin(1)].astype(np.uint8)


_CODE_OF_STEP = _nearest_levels()
# Two neighbours at once: two grid steps, int8 each, to a byte; and a byte to two floats, which travel as 8 bytes.
_BYTE_OF_STEPS = (_CODE_OF_STEP[None, :] | _CODE_OF_STEP[:, None] << 4).ravel()
_LEVELS_OF_BYTE = np.stack([np.tile(LEVELS, 16), np.repeat(LEVELS, 16)], 1).astype("<f4").view(np.uint64)[:, 0]


class Int4(Blockwise):
    """A leaf of n elements is an fp32 scale, ceil(n / block) shares of a byte, then ceil(n / 2) bytes of codes.

    The leaf's scale is its absmax (0 below 2^-100, 2^100 if larger). A block's is `leaf scale * share`, with the sign
    of its largest element; share is its absmax / leaf scale rounded down to 1.m * 2^-e with 3 bits of m, at least
    1.125 * 2^-16. value = LEVELS[code] * (block scale / 128). The error is at most 1/4 of the block's absmax, or 2^-19
    of the leaf's where that is more.
    """

    name = "int4"

    def __init__(self, block: int) -> None:
        super().__init__(block)
        if block % 2:
            raise ValueError(f"int4 packs two elements into a byte: block must be even, got {block}")

    def encoded_size(self, n: int) -> int:
        return _SCALE_BYTES + self._blocks(n) + (n + 1) // 2

    def _encode_rows(self, rows_BK: Tensor, sizes: Sequence[int]) -> list[bytes]:
        low_B, high_B = extremes(rows_BK)
        absmax_B = np.maximum(high_B, -low_B)
        if (absmax_B > _MAX_SCALE).any():
            rows_BK, absmax_B = rows_BK.clamp(-float(_MAX_SCALE), float(_MAX_SCALE)), np.minimum(absmax_B, _MAX_SCALE)
        counts_L = np.array([self._blocks(n) for n in sizes])
        scales_L = np.maximum.reduceat(absmax_B, np.cumsum(counts_L) - counts_L)
        scales_L = np.where(scales_L >= TINY, scales_L, np.float32(0))
        scales_B = np.repeat(scales_L, counts_L)
        alive_B = scales_B > 0
        shares_B = absmax_B / np.where(alive_B, scales_B, np.float32(1))
        codes_B = np.clip((shares_B.view(np.int32) >> _SHIFT) - _SHARE_0, 0, 127).astype(np.uint8)
        codes_B = np.where(alive_B, codes_B | np.where(-low_B > high_B, _NEGATIVE, 0), 0).astype(np.uint8)
        divisor_B = np.where(alive_B, _block_scales(scales_B, codes_B), np.float32(1))
        bytes_BK = np.empty((len(rows_BK), self.block // 2), np.uint8)
        for first, steps_BK in quantised(rows_BK, np.where(alive_B, _GRID / divisor_B, np.float32(0))):
            out_BK = bytes_BK[first : first + len(steps_BK)]
            np.take(_BYTE_OF_STEPS, steps_BK.view("<u2"), out=out_BK, mode="clip")
        scale_bytes, share_bytes, code_bytes = (a.data.cast("B") for a in (scales_L, codes_B, bytes_BK))
        leaves, block = [], 0
        for leaf, n in enumerate(sizes):
            after, first = block + self._blocks(n), block * self.block // 2
            scale = scale_bytes[leaf * _SCALE_BYTES : (leaf + 1) * _SCALE_BYTES]
            leaves.append(b"".join((scale, share_bytes[block:after], code_bytes[first : first + (n + 1) // 2])))
            block = after
        return leaves

    def _decode_rows(self, leaves: Sequence[bytes], sizes: Sequence[int]) -> Rows:
        scales: list[memoryview] = []
        shares: list[memoryview] = []
        codes: list[memoryview | bytes] = []
        counts = [self._blocks(n) for n in sizes]
        for leaf, n, count in zip(leaves, sizes, counts, strict=True):
            view, edge = memoryview(leaf), _SCALE_BYTES + count
            scales.append(view[:_SCALE_BYTES])
            shares.append(view[_SCALE_BYTES:edge])
            codes += (view[edge:], bytes(count * self.block // 2 - (n + 1) // 2))
            if n % 2 and leaf[-1] >> 4:
                raise CodecError("the code after the last element is not zero")
        scales_L = np.frombuffer(b"".join(scales), np.float32)
        if not ((scales_L == 0) | ((scales_L >= TINY) & (scales_L <= _MAX_SCALE))).all():
            raise CodecError("a scale is not finite or out of range")
        scales_B = _block_scales(np.repeat(scales_L, counts), np.frombuffer(b"".join(shares), np.uint8))
        bytes_BK = np.frombuffer(b"".join(codes), np.uint8).reshape(-1, self.block // 2)
        return _Codes(scales_B / _UNIT, bytes_BK)


class _Codes(Rows):
    def __init__(self, scales_B: Floats, bytes_BK: NDArray[np.uint8]) -> None:
        super().__init__(scales_B)
        self._bytes_BK = bytes_BK

    def _look_up(self, out_BK: Tensor, start: int, stop: int) -> None:
        np.take(_LEVELS_OF_BYTE, self._bytes_BK[start:stop], out=out_BK.numpy().view(np.uint64), mode="clip")


def _block_scales(scales_B: Floats, codes_B: NDArray[np.uint8]) -> Floats:
    """Scale of every block, fp32 with its sign: its leaf's times its share, one IEEE multiply."""
    bits_B = ((codes_B & 127).astype(np.int32) + _SHARE_0) << _SHIFT
    signs_B = np.where(codes_B >= _NEGATIVE, np.float32(-1), np.float32(1))
    return scales_B * bits_B.view(np.float32) * signs_B
