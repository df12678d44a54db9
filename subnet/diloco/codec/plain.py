"""Floats as they are: fp32, the form of the consensus state, and IEEE half precision at half its size.

No scales and no blocks, so a leaf is nothing but its values, little-endian. Rounding to half precision is the IEEE
conversion (half to even, with subnormals), which CPUs and GPUs do alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from subnet.diloco.codec.base import CodecError, FixedSizeCodec, byte_view, check_finite, empty_vector

_MAX_HALF = 65_504.0
# Elements handled at once: the temporaries of this many stay in a core's cache.
_CHUNK = 2**18


class _Plain(FixedSizeCodec):
    dtype: ClassVar[torch.dtype]

    def encoded_size(self, n: int) -> int:
        return n * self.dtype.itemsize

    def _split(self, values: Tensor, bounds: Sequence[int]) -> list[bytes]:
        data, first, width = byte_view(values), bounds[0], self.dtype.itemsize
        return [data[(a - first) * width : (b - first) * width].tobytes() for a, b in pairwise(bounds)]


class Fp32(_Plain):
    """Raw little-endian fp32; every value finite."""

    name = "fp32"
    dtype = torch.float32

    def encode_leaves(self, x: Tensor, bounds: Sequence[int]) -> list[bytes]:
        self._check_values(x, bounds)
        check_finite(x)
        return self._split(x.contiguous().cpu(), bounds)

    def decode_leaves(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> Tensor:
        self._check_sizes(leaves, bounds)
        x = torch.frombuffer(bytearray().join(leaves), dtype=torch.float32)
        check_finite(x)
        return x


class Fp16(_Plain):
    """IEEE half precision, little-endian; what is larger than 65504 is carried as 65504, error feedback has the rest.

    The error is at most 2^-11 of the value, or 2^-25 where that is more (below 2^-14).
    """

    name = "fp16"
    dtype = torch.float16

    def encode_leaves(self, x: Tensor, bounds: Sequence[int]) -> list[bytes]:
        self._check_values(x, bounds)
        halves = torch.empty(x.numel(), dtype=torch.float16, device=x.device)
        for piece, half in zip(x.split(_CHUNK), halves.split(_CHUNK), strict=True):
            low, high = float(piece.amin()), float(piece.amax())
            if not (-math.inf < low and high < math.inf):  # also for NaN, which both hand on
                raise CodecError("a value is not finite")
            half.copy_(piece if max(-low, high) <= _MAX_HALF else piece.clamp(-_MAX_HALF, _MAX_HALF))
        return self._split(halves.cpu(), bounds)

    def decode_leaves(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> Tensor:
        self._check_sizes(leaves, bounds)
        halves = torch.frombuffer(bytearray().join(leaves), dtype=torch.float16)
        x = empty_vector(halves.numel())
        for piece, half in zip(x.split(_CHUNK), halves.split(_CHUNK), strict=True):
            piece.copy_(half)
            check_finite(piece)
        return x
