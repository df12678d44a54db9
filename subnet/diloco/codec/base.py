"""What every codec is: fp32 vectors to bytes and back, leaf by leaf, with the same bits on every machine.

Not a format itself. Leaves of one length for every n derive from `FixedSizeCodec`; the others only bound their size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor


class CodecError(ValueError):
    """Bytes that no encoder of this codec makes, or values that it cannot represent."""


class Codec(ABC):
    """Maps fp32 vectors to bytes, leaf by leaf. `bounds` are the leaves' edges in elements, first to last.

    A leaf's bytes depend on its own values only. Encoding takes vectors on any device, decoding makes CPU vectors.
    """

    name: ClassVar[str]

    @abstractmethod
    def max_encoded_size(self, n: int) -> int:
        """Bytes that an encoded leaf of `n` elements has at most: whoever is sent more need not read on."""

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

    def _check_count(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> None:
        if len(leaves) != len(bounds) - 1 or bounds[-1] == bounds[0]:
            raise CodecError(f"expected {len(bounds) - 1} leaves, not empty, got {len(leaves)}")


class FixedSizeCodec(Codec):
    """A codec whose leaves of n elements all have the same length."""

    @abstractmethod
    def encoded_size(self, n: int) -> int:
        """Bytes of an encoded leaf of `n` elements, exactly."""

    def max_encoded_size(self, n: int) -> int:
        return self.encoded_size(n)

    def _check_sizes(self, leaves: Sequence[bytes], bounds: Sequence[int]) -> None:
        self._check_count(leaves, bounds)
        for leaf, (start, stop) in zip(leaves, pairwise(bounds), strict=True):
            if len(leaf) != self.encoded_size(stop - start):
                raise CodecError(f"expected {self.encoded_size(stop - start)} bytes, got {len(leaf)}")


def windows(bounds: Sequence[int], elements: int) -> Iterator[Sequence[int]]:
    """Cut leaves into runs of at most that many elements, but of one leaf at least: `bounds` of each."""
    first = 0
    for leaf in range(1, len(bounds) - 1):
        if bounds[leaf + 1] - bounds[first] > elements:
            yield bounds[first : leaf + 1]
            first = leaf
    yield bounds[first:]


def empty_vector(n: int) -> Tensor:
    """fp32 `[n]` on the CPU, of any values.

    numpy's, not torch's: numpy asks for huge pages, and to be given a page costs more time than to write into it.
    """
    return torch.from_numpy(np.empty(n, np.float32))


def byte_view(x: Tensor) -> memoryview:
    """The memory of a contiguous CPU vector as bytes, without a copy."""
    return x.numpy().data.cast("B")


def check_finite(x: Tensor) -> None:
    """Raises CodecError if a value of the fp32 vector `x` is NaN or infinite."""
    # Two reductions that hand NaN on are an order faster than isfinite, which makes a mask.
    if x.numel() and not bool(torch.isfinite(torch.stack((x.amin(), x.amax()))).all()):
        raise CodecError("a value is not finite")
