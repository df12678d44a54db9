"""Codecs: how a run of leaves becomes bytes and back, one byte string per leaf.

Not an entropy coder and not error feedback (`feedback` keeps what is lost). Int8 is the block-wise absmax quantisation
of 8-bit optimizers (Dettmers et al., arXiv 2110.02861, section 2) made linear, symmetric and exactly reproducible:
every element sees one IEEE multiply and one rounding, so an auditor on another machine gets the same bytes.
Tensor suffixes: B blocks, K elements per block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from subnet.config import CodecConfig
from subnet.diloco.layout import Layout

# Elements handled at once: the temporaries of this many stay in a core's cache.
_CHUNK = 2**19
# A block whose largest magnitude is below _TINY is zero: its scale would come near the denormals, which some machines
# flush. The largest scale leaves room below _HUGE, so that the mean of whatever decodes can always be encoded again.
_TINY = 2.0**-100
_MIN_SCALE = 2.0**-108
_MAX_SCALE = 2.0**94
_HUGE = 2.0**101
_FP32 = 4


class CodecError(ValueError):
    """Bytes that no encoder of this codec makes, or values that it cannot represent."""


class Codec(ABC):
    """Maps fp32 CPU vectors to bytes, leaf by leaf. `bounds` are the leaves' edges in elements, first to last."""

    name: ClassVar[str]

    @abstractmethod
    def encoded_size(self, n: int) -> int:
        """Bytes of an encoded leaf of `n` elements, exactly."""

    @abstractmethod
    def encode_leaves(self, x: Tensor, bounds: Sequence[int]) -> list[bytes]:
        """Encode `x[bounds[i] - bounds[0] : bounds[i + 1] - bounds[0]]` for every i. Raises CodecError."""

    @abstractmethod
    def decode_leaves(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> Tensor:
        """Inverse of `encode_leaves`, for bytes from strangers, to one finite fp32 vector. Raises CodecError."""

    def encode(self, x: Tensor) -> bytes:
        """One leaf of the whole vector `x`, fp32 `[n]`. Raises CodecError for a value that is not finite."""
        return self.encode_leaves(x, (0, x.numel()))[0]

    def decode(self, data: bytes, n: int) -> Tensor:
        """fp32 `[n]` of one leaf. Raises CodecError for a wrong size or anything not finite."""
        return self.decode_leaves((data,), (0, n))

    def _check_values(self, x: Tensor, bounds: Sequence[int]) -> None:
        n = bounds[-1] - bounds[0]
        if n < 1 or x.dtype != torch.float32 or x.shape != (n,):
            raise CodecError(f"expected fp32 [{n}] and n > 0, got {x.dtype} {list(x.shape)}")

    def _check_sizes(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> None:
        if len(leaves) != len(bounds) - 1 or bounds[-1] == bounds[0]:
            raise CodecError(f"expected {len(bounds) - 1} leaves, not empty, got {len(leaves)}")
        for leaf, (start, stop) in zip(leaves, pairwise(bounds), strict=True):
            if len(leaf) != self.encoded_size(stop - start):
                raise CodecError(f"expected {self.encoded_size(stop - start)} bytes, got {len(leaf)}")


class Int8(Codec):
    """A leaf of n elements is ceil(n / block) fp32 scales, then n int8 codes, little-endian; value = code * scale.

    scale = min(absmax / 127, 2^94) of its block, code = round_half_even(x * (127 / absmax)) in -127..127; a block with
    absmax < 2^-100 is all zero. The error is at most absmax / 254 per element, up to fp32 rounding (and 1 % of absmax
    from 2^94 * 127 up to 2^101, beyond which nothing is encoded).
    """

    name = "int8"

    def __init__(self, block: int) -> None:
        """`block`: elements per scale; blocks start anew at every leaf."""
        if block < 1:
            raise ValueError(f"block must be at least 1 element, got {block}")
        self.block = block

    def encoded_size(self, n: int) -> int:
        return self._blocks(n) * _FP32 + n

    def encode_leaves(self, x: Tensor, bounds: Sequence[int]) -> list[bytes]:
        self._check_values(x, bounds)
        leaves: list[bytes] = []
        for window in self._windows(bounds):
            values = x[window[0] - bounds[0] : window[-1] - bounds[0]]
            runs = [self._padded(values[a:b], size) for a, b, size in self._runs(window)]
            scales_B, codes_BK = _quantise(runs[0] if len(runs) == 1 else torch.cat(runs))
            scale_bytes, code_bytes = byte_view(scales_B), byte_view(codes_BK.view(-1))
            block = 0
            for start, stop in pairwise(window):
                after, first = block + self._blocks(stop - start), block * self.block
                leaf = (scale_bytes[block * _FP32 : after * _FP32], code_bytes[first : first + stop - start])
                leaves.append(b"".join(leaf))
                block = after
        return leaves

    def decode_leaves(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> Tensor:
        self._check_sizes(leaves, bounds)
        x = torch.empty(bounds[-1] - bounds[0], dtype=torch.float32)
        remaining = iter(leaves)
        for window in self._windows(bounds):
            scales: list[memoryview] = []
            codes: list[memoryview | bytes] = []
            for (start, stop), leaf in zip(pairwise(window), remaining, strict=False):
                edge = self._blocks(stop - start) * _FP32
                scales.append(memoryview(leaf)[:edge])
                codes += (memoryview(leaf)[edge:], bytes(-(stop - start) % self.block))
            scales_B1 = _checked_scales(bytearray().join(scales))[:, None]
            codes_BK = _checked_codes(bytearray().join(codes)).view(-1, self.block)
            values = x[window[0] - bounds[0] : window[-1] - bounds[0]]
            block = 0
            for a, b, size in self._runs(window):
                after = block + (b - a) // size * self._blocks(size)
                self._dequantise(scales_B1[block:after], codes_BK[block:after], values[a:b], size)
                block = after
        return x

    def _windows(self, bounds: Sequence[int]) -> Iterator[Sequence[int]]:
        """Cut the leaves into windows (their edges in elements) of about `_CHUNK` elements, one leaf at least."""
        first, blocks = 0, 0
        for leaf, (start, stop) in enumerate(pairwise(bounds)):
            blocks += self._blocks(stop - start)
            if blocks * self.block > _CHUNK and leaf > first:
                yield bounds[first : leaf + 1]
                first, blocks = leaf, self._blocks(stop - start)
        yield bounds[first:]

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
            x = torch.nn.functional.pad(x.view(-1, size), (0, -size % self.block))
        return x.view(-1, self.block)

    def _dequantise(self, scales_B1: Tensor, codes_BK: Tensor, x: Tensor, size: int) -> None:
        """Write the values of leaves of `size` elements into `x`, leaving out the padding."""
        if size == self.block:
            x.view(-1, self.block).copy_(codes_BK).mul_(scales_B1)
        else:
            padded = codes_BK.to(torch.float32).mul_(scales_B1).view(-1, self._blocks(size) * self.block)
            x.view(-1, size).copy_(padded[:, :size])

    def _blocks(self, n: int) -> int:
        return -(-n // self.block)


class Fp32(Codec):
    """Raw little-endian fp32, the form of the consensus state; every value finite."""

    name = "fp32"

    def encoded_size(self, n: int) -> int:
        return n * _FP32

    def encode_leaves(self, x: Tensor, bounds: Sequence[int]) -> list[bytes]:
        self._check_values(x, bounds)
        check_finite(x)
        data = byte_view(x.contiguous())
        first = bounds[0]
        return [data[(a - first) * _FP32 : (b - first) * _FP32].tobytes() for a, b in pairwise(bounds)]

    def decode_leaves(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> Tensor:
        self._check_sizes(leaves, bounds)
        x = torch.frombuffer(bytearray().join(leaves), dtype=torch.float32)
        check_finite(x)
        return x


def codec_of(cfg: CodecConfig) -> Codec:
    """The codec a run names."""
    return Int8(cfg.block) if cfg.name == "int8" else Fp32()


def encode_part(codec: Codec, layout: Layout, x: Tensor, start: int, stop: int) -> list[bytes]:
    """Encode the leaves `[start, stop)` whose values are `x`, fp32 of just those leaves. Raises CodecError."""
    return codec.encode_leaves(x, layout.bounds[start : stop + 1])


def encode_tree(codec: Codec, layout: Layout, x: Tensor) -> list[bytes]:
    """Encode every leaf of the flat vector `x`, fp32 `[numel]`. Raises CodecError."""
    return encode_part(codec, layout, x, 0, layout.num_leaves)


def decode_part(codec: Codec, layout: Layout, leaves: Sequence[bytes], start: int, stop: int) -> Tensor:
    """Decode `leaves`, those of `[start, stop)` only, to fp32 of just those leaves. Raises CodecError."""
    return codec.decode_leaves(leaves, layout.bounds[start : stop + 1])


def _quantise(rows_BK: Tensor) -> tuple[Tensor, Tensor]:
    """Scales fp32 `[B]` and codes int8 `[B, K]` of B blocks of K elements."""
    absmax = torch.maximum(rows_BK.amax(1), rows_BK.amin(1).neg_())
    if not bool((absmax < _HUGE).all()):  # also false for NaN, which amax and amin hand on
        raise CodecError("a value is not finite, or too large to encode")
    alive = absmax >= _TINY
    scales = torch.where(alive, (absmax / 127.0).clamp_(max=_MAX_SCALE), 0.0)
    inverse = torch.where(alive, 127.0 / absmax, 0.0)
    return scales, (rows_BK * inverse[:, None]).round_().to(torch.int8)


def _checked_scales(data: bytearray) -> Tensor:
    scales = torch.frombuffer(data, dtype=torch.float32)
    if not bool(((scales == 0.0) | ((scales >= _MIN_SCALE) & (scales <= _MAX_SCALE))).all()):
        raise CodecError("a scale is not finite or out of range")
    return scales


def _checked_codes(data: bytearray) -> Tensor:
    codes = torch.frombuffer(data, dtype=torch.int8)
    if int(codes.min()) < -127:
        raise CodecError("a code is out of range")
    return codes


def byte_view(x: Tensor) -> memoryview:
    """The memory of a contiguous CPU vector as bytes, without a copy."""
    return x.numpy().data.cast("B")


def check_finite(x: Tensor) -> None:
    """Raises CodecError if a value of the fp32 vector `x` is NaN or infinite."""
    # Two reductions that hand NaN on are an order faster than isfinite, which makes a mask.
    if x.numel() and not bool(torch.isfinite(torch.stack((x.amin(), x.amax()))).all()):
        raise CodecError("a value is not finite")
