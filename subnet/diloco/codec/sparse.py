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
from subnet.diloco.codec.select import MAGNITUDE, MAX_ROW, Ints, largest

Bytes = NDArray[np.uint8]

# Elements whose leaves are made together: the temporaries of these many stay in a core's caches.
_WINDOW = 2**21


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
        x = np.zeros(bounds[-1] - bounds[0], np.float32)
        first = 0
        for window in windows(bounds, _WINDOW):
            for n, which in _by_size(window):
                places_LK, values_LK = self._decode([leaves[first + leaf] for leaf in which], n)
                starts = np.array([window[leaf] - bounds[0] for leaf in which])
                x[places_LK + starts[:, None]] = values_LK
            first += len(window) - 1
        return torch.from_numpy(x)

    def _encode(self, x_LN: Tensor) -> list[bytes]:
        count, n = x_LN.shape
        shape = _Shape(self, n)
        headers, gaps, flags = [], [], []
        for start, stop, size, kept in shape.spans:
            columns_MK, bits_MK, ranked_MK = largest(x_LN[:, start:stop].reshape(-1, size), kept)
            if int(ranked_MK[:, 0].max()) >= HUGE_BITS:
                raise CodecError("a value is not finite, or too large to encode")
            tiny_M = ranked_MK[:, 0] < TINY_BITS
            if tiny_M.any():
                columns_MK[tiny_M], bits_MK[tiny_M], ranked_MK[tiny_M] = np.arange(kept), 0, 0
            header_M, least_high_M = split(ranked_MK)
            if not ranked_MK[:, -1].all():
                bits_MK[bits_MK & MAGNITUDE == 0] = 0  # zeros have no sign
            flags_MK = ((bits_MK & MAGNITUDE) >= least_high_M[:, None]) | ((bits_MK >> 31) & 2)
            headers.append(header_M.reshape(count, -1))
            gaps.append(_gaps(columns_MK).reshape(count, -1))
            flags.append(flags_MK.reshape(count, -1))
        gaps_LK, flags_LK = np.concatenate(gaps, axis=1), np.concatenate(flags, axis=1)
        symbols_LB = _packed((gaps_LK & ((1 << self.low_bits) - 1)) | (flags_LK << self.low_bits), self.low_bits + 2)
        stops_LK = np.cumsum((gaps_LK >> self.low_bits) + 1, axis=1, dtype=np.int32)
        edge, rest = divmod(shape.symbol_bits, 8)
        unary_LU = np.zeros((count, rest + int(stops_LK[:, -1].max())), np.uint8)
        before_L1 = np.arange(count)[:, None] * unary_LU.shape[1] + (rest - 1)
        unary_LU.reshape(-1)[before_L1 + stops_LK] = 1
        packed_LB = np.packbits(unary_LU, axis=1, bitorder="little")
        if rest:  # the first byte has the last symbols' bits, too
            packed_LB[:, 0] |= symbols_LB[:, edge]
        header_bytes = np.concatenate(headers, axis=1).astype("<u2").view(np.uint8)
        data = np.concatenate((header_bytes, symbols_LB[:, :edge], packed_LB), axis=1)
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
        edge, rest = divmod(shape.symbol_bits, 8)
        unary_LU = np.unpackbits(data[:, shape.header_bytes + edge :], axis=1, bitorder="little")[:, rest:]
        stops_LK = self._stops(unary_LU, [len(leaf) for leaf in leaves], shape)
        symbols_LK = _unpacked(data[:, shape.header_bytes :], shape.kept, self.low_bits + 2)
        gaps_LK = (_gaps(stops_LK - 1) << self.low_bits) | (symbols_LK & ((1 << self.low_bits) - 1))
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

    def _stops(self, unary_LU: Bytes, lengths: Sequence[int], shape: _Shape) -> Ints:
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


def _gaps(places_MK: Ints) -> Ints:
    """What lies between a place and the one before it, or the row's beginning."""
    gaps_MK = places_MK.copy()
    gaps_MK[:, 1:] -= places_MK[:, :-1] + 1
    return gaps_MK


def _packed(symbols_LK: Ints, width: int) -> Bytes:
    """`width` bits of every symbol, least significant first, as bytes; there are `width` of them to eight symbols."""
    count, kept = symbols_LK.shape
    symbols_LG8 = _padded(symbols_LK, kept + -kept % 8).reshape(count, -1, 8)
    symbols_8LG = np.moveaxis(symbols_LG8, 2, 0).astype(_symbol_type(width), order="C")
    bytes_WLG = np.zeros((width, *symbols_8LG.shape[1:]), symbols_8LG.dtype)
    for symbol, byte, shift in _overlaps(width):
        bytes_WLG[byte] |= _shifted(symbols_8LG[symbol], shift)
    return np.moveaxis(bytes_WLG, 0, 2).astype(np.uint8, order="C").reshape(count, -1)


def _unpacked(bytes_LB: Bytes, kept: int, width: int) -> Ints:
    """Inverse of `_packed`, for `kept` symbols per row of at least their bytes."""
    count, groups = len(bytes_LB), -(-kept // 8)
    bytes_LGW = _padded(bytes_LB[:, : groups * width], groups * width).reshape(count, groups, width)
    bytes_WLG = np.moveaxis(bytes_LGW, 2, 0).astype(_symbol_type(width), order="C")
    symbols_8LG: NDArray[Any] = np.zeros((8, count, groups), bytes_WLG.dtype)
    for symbol, byte, shift in _overlaps(width):
        symbols_8LG[symbol] |= _shifted(bytes_WLG[byte], -shift)
    symbols_8LG &= (1 << width) - 1
    return np.moveaxis(symbols_8LG, 0, 2).astype(np.int32, order="C").reshape(count, -1)[:, :kept]


def _symbol_type(width: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32


def _overlaps(width: int) -> Iterator[tuple[int, int, int]]:
    """Of eight symbols and their bytes: which share bits, and how far to the left of the byte's the symbol's begin."""
    for symbol in range(8):
        for byte in range(width * symbol // 8, (width * (symbol + 1) - 1) // 8 + 1):
            yield symbol, byte, width * symbol - 8 * byte


def _padded(x_MS: NDArray[Any], columns: int) -> NDArray[Any]:
    """With zeros at the end of every row, up to that many columns."""
    missing = columns - x_MS.shape[1]
    return np.pad(x_MS, ((0, 0), (0, missing))) if missing else x_MS


def _shifted(x: NDArray[Any], left: int) -> NDArray[Any]:
    return x << left if left > 0 else x >> -left
