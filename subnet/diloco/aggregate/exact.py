"""Sums, order statistics and distances of fp32 vectors that come out the same, bit for bit, on x86, Arm and GPUs.

IEEE 754 fixes the last bit of one addition, subtraction, multiplication, division or square root. It leaves open the
order of a sum and whether a product is fused into it; library reductions differ there, between builds and thread
counts. So every step here is one elementwise call on stored operands (nothing fuses across calls), in an order written
down below. Not relied on: division by a scalar, which CUDA turns into a multiplication by its reciprocal; and which of
-0.0 and 0.0 is the minimum, which differs between instruction sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

# Elements handled at once, so that the temporaries stay in a core's caches. Neither can change a bit of a result.
_CHUNK = 2**18
_SORT_CHUNK = 2**15
# These two are part of the result: they fix the order of the additions in `squared_distance`.
_BLOCK = 2**16
_LANES = 2**12


def weighted_sum(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """sum_i weights_i * vectors_i, fp32 `[n]`: one multiplication and one addition per element and vector, in order.

    `vectors`: fp32 `[n]`, one at least; `weights`: fp32 values. The first product starts the sum.
    """
    total = torch.empty_like(vectors[0])
    product = torch.empty_like(total[:_CHUNK])
    for chunk in _chunks(total.numel(), _CHUNK):
        part = total[chunk]
        torch.mul(vectors[0][chunk], weights[0], out=part)
        for x, weight in zip(vectors[1:], weights[1:], strict=True):
            part.add_(torch.mul(x[chunk], weight, out=product[: part.numel()]))
    return total


def weighted_mean_of_senders(vectors: Sequence[Tensor], weights: Sequence[float], shares: Sequence[float]) -> Tensor:
    """sum_i weights_i * vectors_i / sum of the shares of those not zero there, 0 where all are; fp32 `[n]`.

    Both sums as in `weighted_sum`, from zero; then one division of elements by elements, which is IEEE everywhere.
    """
    mean = torch.zeros_like(vectors[0])
    product, sent = torch.empty_like(mean[:_CHUNK]), torch.empty_like(mean[:_CHUNK])
    for chunk in _chunks(mean.numel(), _CHUNK):
        total = mean[chunk]
        term, weight_sent = product[: total.numel()], sent[: total.numel()].zero_()
        for x, weight, share in zip(vectors, weights, shares, strict=True):
            total.add_(torch.mul(x[chunk], weight, out=term))
            weight_sent.add_(torch.ne(x[chunk], 0.0, out=term).mul_(share))
        total.div_(weight_sent.masked_fill_(weight_sent == 0.0, 1.0))
    return mean


def trimmed_sum(vectors: Sequence[Tensor], weights: Sequence[float], drop: int) -> Tensor:
    """Per element: of the products weights_i * vectors_i without the `drop` lowest and highest, the sum; fp32 `[n]`.

    `2 * drop` is below the number of vectors; `weights` are fp32 values. The additions go from the lowest value up, so
    the vectors' order changes nothing. Zeros lose their sign first, hence equal values are equal bits, and it does not
    matter which of them is dropped, nor how they are sorted: elementwise minima and maxima of a sorting network.
    """
    kept = range(drop, len(vectors) - drop)
    network = _network(len(vectors), drop)
    total = torch.empty_like(vectors[0])
    rows = list(total.new_empty(len(vectors) + 1, min(_SORT_CHUNK, total.numel())))
    for chunk in _chunks(total.numel(), _SORT_CHUNK):
        part = total[chunk]
        *wires, spare = (row[: part.numel()] for row in rows)
        for wire, x, weight in zip(wires, vectors, weights, strict=True):
            torch.mul(x[chunk], weight, out=wire).add_(0.0)
        for low, high, low_used, high_used in network:
            a, b = wires[low], wires[high]
            if low_used:
                torch.minimum(a, b, out=spare)
            if high_used:
                torch.maximum(a, b, out=b)
            wires[low], spare = spare, a
        part.copy_(wires[kept[0]])
        for wire in kept[1:]:
            part.add_(wires[wire])
    return total


def squared_distance(x: Tensor, scale: float, centre: Tensor) -> float:
    """Squared L2 norm of scale * x - centre; fp32 `[n]` both, `scale` an fp32 value, the result a double.

    Multiplied and subtracted in fp32, squared (exactly) and summed in fp64. A block of `_BLOCK` elements, zeros after
    the last one, is halved by adding its upper half to its lower until `_LANES` sums are left; those of block after
    block are added lane by lane; the lanes are halved in the same way until one is left.
    """
    lanes = x.new_zeros(_LANES, dtype=torch.float64)
    squares = x.new_empty(_BLOCK, dtype=torch.float64)
    difference = torch.empty_like(x[:_BLOCK])
    for block in _chunks(x.numel(), _BLOCK):
        element = x[block]
        d = difference[: element.numel()]
        # One times x is x: this spares a pass, and no bit depends on it.
        torch.sub(element if scale == 1.0 else torch.mul(element, scale, out=d), centre[block], out=d)
        squares[: d.numel()].copy_(d)
        squares[d.numel() :].zero_()
        lanes.add_(_halved(squares.mul_(squares), _LANES))
    return float(_halved(lanes, 1))


def _halved(x: Tensor, size: int) -> Tensor:
    """The first `size` elements of `x` after adding its upper half to its lower, in place, again and again.

    Both sizes are powers of two.
    """
    half = x.numel()
    while half > size:
        half //= 2
        x[:half].add_(x[half : 2 * half])
    return x[:size]


@lru_cache(maxsize=64)
def _network(n: int, drop: int) -> list[tuple[int, int, bool, bool]]:
    """Comparators `(low, high, whether the minimum is used, whether the maximum is)` that put ranks on wires.

    Batcher's odd-even merge sort of `n` wires (Knuth, TAOCP 3, 5.3.4), less what does not bear on the ranks kept:
    `drop` to `n - drop - 1`. Its recursive order works on few wires at a time, which are then still in the cache.
    """
    width = 1 << (n - 1).bit_length()
    # Wires from n on would hold infinity, which no comparator moves.
    pairs = [pair for pair in _sorting(range(width)) if pair[1] < n]
    used = set(range(drop, n - drop))
    network = []
    for low, high in reversed(pairs):
        if low in used or high in used:
            network.append((low, high, low in used, high in used))
            used |= {low, high}
    return network[::-1]


def _sorting(wires: range) -> Iterator[tuple[int, int]]:
    if len(wires) > 1:
        half = len(wires) // 2
        yield from _sorting(wires[:half])
        yield from _sorting(wires[half:])
        yield from _merging(wires)


def _merging(wires: range) -> Iterator[tuple[int, int]]:
    if len(wires) == 2:
        yield wires[0], wires[1]
    else:
        yield from _merging(wires[::2])
        yield from _merging(wires[1::2])
        yield from zip(wires[1:-1:2], wires[2:-1:2], strict=True)


def _chunks(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
