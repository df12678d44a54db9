"""Sparse: of every chunk only the k largest elements, as their places and two bits of value each.

SparseLoCo's compressor (arXiv 2508.15706), but chosen, rounded and coded by integers, so that an auditor gets the same
bytes; and every leaf that decodes is the one leaf its values encode to. Places are Rice codes of the gaps (Rice 1979).
Tensor suffixes: L leaves, N their elements, M chunks, S elements per chunk, K kept of a chunk or, after L, of a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subnet.diloco.codec.base import Codec, CodecError, windows
from subnet.diloco.codec.magnitudes import HEADER_BYTES, HUGE_BITS, TINY_BITS, split, values
from subnet.diloco.codec.select import MAX_ROW, Ints, largest

Bits = NDArray[np.uint8]

_MAGNITUDE = 0x7FFF_FFFF
# Elements whose leaves are made together: the temporaries of these many stay in a core's caches.
_WINDOW = 2**20


class Sparse(Codec):
    """A leaf is a header per chunk, then a string of bits, least significant first: the gaps' low bits, plane by plane,
    a plane that says which magnitudes are high, one of signs, and for every gap as many zeros as its quotient and a 1.

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
        return shape.header_bytes + (shape.plane_bits + shape.kept + zeros + 7) // 8

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
        headers, gaps, highs, signs = [], [], [], []
        for start, stop, size, kept in shape.spans:
            x_MS = x_LN[:, start:stop].reshape(-1, size)
            bits_MS = x_MS.view(torch.int32) & _MAGNITUDE
            columns_MK, bits_MK = largest(bits_MS, kept)
            if int(bits_MK.max()) >= HUGE_BITS:
                raise CodecError("a value is not finite, or too large to encode")
            tiny_M = bits_MK[:, 0] < TINY_BITS
            columns_MK[tiny_M], bits_MK[tiny_M] = np.arange(kept), 0
            header_M, high_MK = split(bits_MK)
            order_MK = columns_MK.argsort(axis=1)
            columns_MK = np.take_along_axis(columns_MK, order_MK, axis=1)
            nonzero_MK = np.take_along_axis(bits_MK, order_MK, axis=1) > 0
            high_MK = np.take_along_axis(high_MK, order_MK, axis=1)
            negative_MK = np.take_along_axis(x_MS.numpy(), columns_MK, axis=1) < 0
            headers.append(header_M.reshape(count, -1))
            gaps.append(np.diff(columns_MK, axis=1, prepend=-1).reshape(count, -1) - 1)
            highs.append(high_MK.reshape(count, -1))
            signs.append((negative_MK & nonzero_MK).reshape(count, -1))
        gaps_LK, highs_LK, signs_LK = (np.concatenate(a, axis=1) for a in (gaps, highs, signs))
        stops_LK = np.cumsum((gaps_LK >> self.low_bits) + 1, axis=1)
        bits_LB = np.zeros((count, shape.plane_bits + int(stops_LK[:, -1].max())), np.uint8)
        planes = [*((gaps_LK >> bit) & 1 for bit in range(self.low_bits)), highs_LK, signs_LK]
        bits_LB[:, : shape.plane_bits] = np.concatenate(planes, axis=1)
        np.put_along_axis(bits_LB, shape.plane_bits + stops_LK - 1, 1, axis=1)
        header_bytes = np.concatenate(headers, axis=1).astype("<u2").view(np.uint8)
        data = np.concatenate((header_bytes, np.packbits(bits_LB, axis=1, bitorder="little")), axis=1)
        sizes = shape.header_bytes + (shape.plane_bits + stops_LK[:, -1] + 7) // 8
        return [row[:size].tobytes() for row, size in zip(data, sizes.tolist(), strict=True)]

    def _decode(self, leaves: Sequence[bytes], n: int) -> tuple[Ints, NDArray[np.float32]]:
        """Places in the leaf and values, `[L, K]`, of leaves of n elements. Raises CodecError."""
        shape, longest = _Shape(self, n), max(map(len, leaves))
        least, most = shape.header_bytes + (shape.plane_bits + shape.kept + 7) // 8, self.max_encoded_size(n)
        if not least <= min(map(len, leaves)) <= longest <= most:
            raise CodecError(f"expected {least} to {most} bytes for {n} elements")
        data = np.frombuffer(b"".join(leaf.ljust(longest, b"\0") for leaf in leaves), np.uint8).reshape(-1, longest)
        headers_LM = np.ascontiguousarray(data[:, : shape.header_bytes]).view("<u2")
        bits_LB = np.unpackbits(data[:, shape.header_bytes :], axis=1, bitorder="little")
        stops_LK = self._stops(bits_LB[:, shape.plane_bits :], [len(leaf) for leaf in leaves], shape)
        gaps_LK = (np.diff(stops_LK, axis=1, prepend=0) - 1) << self.low_bits
        planes = bits_LB[:, : shape.plane_bits].reshape(len(leaves), -1, shape.kept)
        for bit in range(self.low_bits):
            gaps_LK |= planes[:, bit].astype(np.int64) << bit
        highs_LK, signs_LK = planes[:, -2].view(np.bool_), planes[:, -1].view(np.bool_)
        places_LK, values_LK = np.empty_like(gaps_LK), np.empty(gaps_LK.shape, np.float32)
        chunk = done = 0
        for start, stop, size, kept in shape.spans:
            count = (stop - start) // size
            span = slice(done, done + count * kept)
            columns_MK = np.cumsum(gaps_LK[:, span].reshape(-1, kept) + 1, axis=1) - 1
            if (columns_MK[:, -1] >= size).any():
                raise CodecError("a place is beyond its chunk")
            values_MK = values(
                headers_LM[:, chunk : chunk + count].reshape(-1),
                *(a[:, span].reshape(-1, kept) for a in (highs_LK, signs_LK)),
            )
            if ((values_MK == 0) & (columns_MK != np.arange(kept))).any():
                raise CodecError("a zero is kept that is not the first")
            offsets_M1 = start + np.arange(count)[:, None] * size
            places_LK[:, span] = (columns_MK.reshape(-1, count, kept) + offsets_M1).reshape(len(leaves), -1)
            values_LK[:, span] = values_MK.reshape(len(leaves), -1)
            chunk, done = chunk + count, span.stop
        return places_LK, values_LK

    def _stops(self, unary_LU: Bits, lengths: Sequence[int], shape: _Shape) -> Ints:
        """Bits up to and with the 1 of every gap, `[L, K]`. Raises CodecError unless just these fill the lengths."""
        ones = np.flatnonzero(unary_LU)
        if not (np.count_nonzero(unary_LU, axis=1) == shape.kept).all():
            raise CodecError(f"expected {shape.kept} gaps")
        stops_LK = ones.reshape(-1, shape.kept) % unary_LU.shape[1] + 1
        if (shape.header_bytes + (shape.plane_bits + stops_LK[:, -1] + 7) // 8 != lengths).any():
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
        self.plane_bits = (codec.low_bits + 2) * self.kept


def _by_size(window: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """The window's leaves by their number of elements."""
    which: dict[int, list[int]] = {}
    for leaf, (start, stop) in enumerate(pairwise(window)):
        which.setdefault(stop - start, []).append(leaf)
    yield from which.items()
