"""Sparse: of every chunk only the k largest elements, as their places and two bits of value each.

SparseLoCo's compressor (arXiv 2508.15706), but chosen, rounded and coded by integers, so that an auditor gets the same
bytes; and every leaf that decodes is the one leaf its values encode to. Places are Rice codes of the gaps (Rice 1979).
Tensor suffixes: L leaves, N their elements, M chunks, S elements per chunk, K kept of a chunk or, after L, of a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subnet.diloco.codec.base import Codec, CodecError, windows
from subnet.diloco.codec.magnitudes import HEADER_BYTES, HUGE_BITS, TINY_BITS, split, values
from subnet.diloco.codec.select import MAX_ROW, Ints, largest

Bits = NDArray[np.uint8]

# Elements whose leaves are made together: the temporaries of these many stay in a core's caches.
_WINDOW = 2**20


class Sparse(Codec):
    """A leaf is a header per chunk, then a string of bits, least significant first: of every kept element the low bits
    of the gap before it, whether its magnitude is the high one and its sign, then of every gap the quotient in unary.

    Chunks start anew at every leaf; the last one of S < chunk elements keeps ceil(top_k * S / chunk).
    """

    name = "sparse"

    def __init__(self, top_k: int, chunk: int) -> None:
        """`top_k` elements are kept of every `chunk`. Raises ValueError unless 0 < top_k <= chunk <= 65536."""
        if not 0 < top_k <= chunk <= MAX_ROW:
            raise ValueError(f"sparse needs 0 < top_k <= chunk <= {MAX_ROW}, got {top_k} of {chunk}")
        self.top_k = top_k
        self.chunk = chunk
        # The largest power of two within ln 2 times the mean gap; the best one or next to it for random places.
        self.low_bits = max(0, (chunk * 7 // (top_k * 10)).bit_length() - 1)

    def max_encoded_size(self, n: int) -> int:
        shape = _Shape(self, n)
        zeros = sum(count * ((size - kept) >> self.low_bits) for count, size, kept in shape.parts)
        return shape.header_bytes + (shape.symbol_bits + shape.kept + zeros + 7) // 8

    def encode_leaves(self, x: Tensor, bounds: Sequence[int]) -> list[bytes]:
        self._check_values(x, bounds)
        leaves: list[bytes] = []
        for window in windows(bounds, _WINDOW):
            flat = x[window[0] - bounds[0] : window[-1] - bounds[0]].cpu()
            made = [b""] * (len(window) - 1)
            for n, which in _by_size(window):
                starts = [window[leaf] - window[0] for leaf in which]
                together = starts[-1] - starts[0] == (len(starts) - 1) * n
                rows = flat[starts[0] : starts[-1] + n] if together else torch.cat([flat[a : a + n] for a in starts])
                for leaf, data in zip(which, self._encode(rows.view(-1, n)), strict=True):
                    made[leaf] = data
            leaves += made
        return leaves

    def decode_leaves(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> Tensor:
        self._check_count(leaves, bounds)
        x = torch.zeros(bounds[-1] - bounds[0], dtype=torch.float32)
        first = 0
        for window in windows(bounds, _WINDOW):
            for n, which in _by_size(window):
                places_LK, values_LK = self._decode([leaves[first + leaf] for leaf in which], n)
                starts = np.array([window[leaf] - bounds[0] for leaf in which])
                x.numpy()[places_LK + starts[:, None]] = values_LK
            first += len(window) - 1
        return x

    def _encode(self, x_LN: Tensor) -> list[bytes]:
        count, n = x_LN.shape
        shape = _Shape(self, n)
        headers, gaps, flags = [], [], []
        for start, stop, size, kept in shape.spans:
            x_MS = x_LN[:, start:stop].reshape(-1, size)
            columns_MK, bits_MK, negative_MK = largest(x_MS, kept)
            if int(bits_MK[:, 0].max()) >= HUGE_BITS:
                raise CodecError("a value is not finite, or too large to encode")
            tiny_M = bits_MK[:, 0] < TINY_BITS
            columns_MK[tiny_M], bits_MK[tiny_M] = np.arange(kept), 0
            header_M, n_high_M = split(bits_MK)
            # In the order of places, with what belongs to each carried along.
            high_MK = np.arange(kept) < n_high_M[:, None]
            packed_MK = (columns_MK << 2) | (np.where(bits_MK > 0, negative_MK, 0) << 1) | high_MK
            packed_MK.sort(axis=1)
            headers.append(header_M.reshape(count, -1))
            gaps.append(np.diff(packed_MK >> 2, axis=1, prepend=np.int32(-1)).reshape(count, -1) - 1)
            flags.append((packed_MK & 3).reshape(count, -1))
        gaps_LK, flags_LK = np.concatenate(gaps, axis=1), np.concatenate(flags, axis=1)
        stops_LK = np.cumsum((gaps_LK >> self.low_bits) + 1, axis=1, dtype=np.int64)
        bits_LB = np.zeros((count, shape.symbol_bits + int(stops_LK[:, -1].max())), np.uint8)
        symbols_LK = (gaps_LK & ((1 << self.low_bits) - 1)) | (flags_LK << self.low_bits)
        symbol_bits_LKW = bits_LB[:, : shape.symbol_bits].reshape(count, shape.kept, -1)
        symbol_bits_LKW[:] = _unpacked(symbols_LK, self.low_bits + 2)
        row_L1 = np.arange(count)[:, None] * bits_LB.shape[1]
        bits_LB.reshape(-1)[row_L1 + (shape.symbol_bits - 1) + stops_LK] = 1
        header_bytes = np.concatenate(headers, axis=1).astype("<u2").view(np.uint8)
        data = np.concatenate((header_bytes, np.packbits(bits_LB, axis=1, bitorder="little")), axis=1)
        sizes = shape.header_bytes + (shape.symbol_bits + stops_LK[:, -1] + 7) // 8
        return [row[:size].tobytes() for row, size in zip(data, sizes.tolist(), strict=True)]

    def _decode(self, leaves: Sequence[bytes], n: int) -> tuple[Ints, NDArray[np.float32]]:
        """Places in the leaf and values, `[L, K]`, of leaves of n elements. Raises CodecError."""
        shape, longest = _Shape(self, n), max(map(len, leaves))
        least, most = shape.header_bytes + (shape.symbol_bits + shape.kept + 7) // 8, self.max_encoded_size(n)
        if not least <= min(map(len, leaves)) <= longest <= most:
            raise CodecError(f"expected {least} to {most} bytes for {n} elements")
        data = np.frombuffer(b"".join(leaf.ljust(longest, b"\0") for leaf in leaves), np.uint8).reshape(-1, longest)
        headers_LM = np.ascontiguousarray(data[:, : shape.header_bytes]).view("<u2")
        bits_LB = np.unpackbits(data[:, shape.header_bytes :], axis=1, bitorder="little")
        stops_LK = self._stops(bits_LB[:, shape.symbol_bits :], [len(leaf) for leaf in leaves], shape)
        symbols_LK = _packed(bits_LB[:, : shape.symbol_bits].reshape(len(leaves), shape.kept, -1))
        quotients_LK = np.diff(stops_LK, axis=1, prepend=np.int32(0)) - 1
        gaps_LK = (quotients_LK << self.low_bits) | (symbols_LK & ((1 << self.low_bits) - 1))
        flags_LK = symbols_LK >> self.low_bits
        places_LK, values_LK = np.empty_like(gaps_LK), np.empty(gaps_LK.shape, np.float32)
        chunk = done = 0
        for start, stop, size, kept in shape.spans:
            count = (stop - start) // size
            span = slice(done, done + count * kept)
            columns_MK = np.cumsum(gaps_LK[:, span].reshape(-1, kept) + 1, axis=1, dtype=np.int32) - 1
            if (columns_MK[:, -1] >= size).any():
                raise CodecError("a place is beyond its chunk")
            header_M = headers_LM[:, chunk : chunk + count].reshape(-1)
            values_MK = values(header_M, flags_LK[:, span].reshape(-1, kept), columns_MK)
            offsets_M1 = start + np.arange(count, dtype=np.int32)[:, None] * size
            places_LK[:, span] = (columns_MK.reshape(-1, count, kept) + offsets_M1).reshape(len(leaves), -1)
            values_LK[:, span] = values_MK.reshape(len(leaves), -1)
            chunk, done = chunk + count, span.stop
        return places_LK, values_LK

    def _stops(self, unary_LU: Bits, lengths: Sequence[int], shape: _Shape) -> Ints:
        """Bits up to and with the 1 of every gap, `[L, K]`. Raises CodecError unless just these fill the lengths."""
        count, width = unary_LU.shape
        ones = np.flatnonzero(unary_LU.view(np.bool_))
        if len(ones) != count * shape.kept:
            raise CodecError(f"expected {shape.kept} gaps in every leaf")
        stops_LK = (ones.reshape(count, -1) - np.arange(count)[:, None] * width).astype(np.int32) + 1
        if (stops_LK[:, 0] < 1).any() or (stops_LK[:, -1] > width).any():
            raise CodecError(f"expected {shape.kept} gaps in every leaf")
        if (shape.header_bytes + (shape.symbol_bits + stops_LK[:, -1] + 7) // 8 != lengths).any():
            raise CodecError("expected no bytes after the last gap")
        return stops_LK


class _Shape:
    """How a leaf of n elements is cut: its whole chunks and what is left over."""

    def __init__(self, codec: Sparse, n: int) -> None:
        whole, rest = divmod(n, codec.chunk)
        kept_of_rest = -(-codec.top_k * rest // codec.chunk)
        self.parts = [p for p in ((whole, codec.chunk, codec.top_k), (1, rest, kept_of_rest)) if p[0] and p[1]]
        """`(chunks, elements of each, kept of each)`."""
        edge = whole * codec.chunk
        spans = ((0, edge, codec.chunk, codec.top_k), (edge, n, rest, kept_of_rest))
        self.spans = [span for span in spans if span[0] < span[1]]
        """`(start, stop, elements of a chunk, kept of a chunk)`."""
        self.kept = sum(count * kept for count, _, kept in self.parts)
        self.header_bytes = HEADER_BYTES * sum(count for count, _, _ in self.parts)
        self.symbol_bits = (codec.low_bits + 2) * self.kept


def _by_size(window: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """The window's leaves by their number of elements."""
    which: dict[int, list[int]] = {}
    for leaf, (start, stop) in enumerate(pairwise(window)):
        which.setdefault(stop - start, []).append(leaf)
    yield from which.items()


def _unpacked(symbols_LK: Ints, width: int) -> Bits:
    """The `width` bits of every symbol, uint8 `[L, K, width]`, least significant first."""
    dtype = _symbol_type(width)
    bits = np.unpackbits(symbols_LK.astype(dtype).reshape(-1).view(np.uint8), bitorder="little")
    return bits.reshape(*symbols_LK.shape, 8 * dtype.itemsize)[..., :width]


def _packed(bits_LKW: Bits) -> Ints:
    """Inverse of `_unpacked`."""
    *shape, width = bits_LKW.shape
    dtype = _symbol_type(width)
    padded = np.zeros((*shape, 8 * dtype.itemsize), np.uint8)
    padded[..., :width] = bits_LKW
    return np.packbits(padded, bitorder="little").view(dtype).reshape(shape).astype(np.int32)


def _symbol_type(width: int) -> np.dtype[Any]:
    return np.dtype("<u1" if width <= 8 else "<u2" if width <= 16 else "<u4")
