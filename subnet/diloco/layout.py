"""The canonical flat order of a model's parameters, and how it is cut into slices, leaves and parts.

Not a container of values: a layout is a pure function of names, shapes and the leaf size, so that all peers of a run
cut alike. The eight slices per tensor let 1, 2, 4 or 8 ranks own whole runs of leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod

import torch
from torch import Tensor

SLICES = 8
"""Equal cuts of every tensor along its first dimension."""


class Layout:
    """Flat order of named tensors: by name, each row-major, each slice of it in leaves of at most `leaf_size` elements.

    `leaves` are contiguous `(start, stop)` ranges of flat elements that cover `[0, numel)`; none crosses a slice.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], leaf_size: int) -> None:
        """`shapes` in any order. Raises ValueError unless every first dimension is a positive multiple of 8."""
        if leaf_size < 1:
            raise ValueError(f"leaf_size must be at least 1 element, got {leaf_size}")
        if not shapes:
            raise ValueError("a layout needs at least one tensor")
        for name, shape in shapes.items():
            if not shape or shape[0] % SLICES or min(shape) < 1:
                raise ValueError(f"{name}: the first dimension must be a multiple of {SLICES}, got {tuple(shape)}")
        self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}
        self.leaf_size = leaf_size
        self.bounds: list[int] = [0]
        """`num_leaves + 1` flat elements: leaf i is `[bounds[i], bounds[i + 1])`."""
        for shape in self.shapes.values():
            for _ in range(SLICES):
                start = self.bounds[-1]
                stop = start + prod(shape) // SLICES
                self.bounds.extend(range(start + leaf_size, stop, leaf_size))
                self.bounds.append(stop)
        self.num_leaves = len(self.bounds) - 1
        self.numel = self.bounds[-1]

    @classmethod
    def of(cls, named_shapes: Iterable[tuple[str, Sequence[int]]], leaf_size: int) -> Layout:
        """Layout of `(name, shape)` pairs in any order. Raises ValueError, also for a name given twice."""
        pairs = [(name, tuple(shape)) for name, shape in named_shapes]
        shapes = dict(pairs)
        if len(shapes) != len(pairs):
            raise ValueError("two tensors of a layout have the same name")
        return cls(shapes, leaf_size)

    @cached_property
    def leaves(self) -> list[tuple[int, int]]:
        """`(start, stop)` in flat elements of every leaf."""
        return list(pairwise(self.bounds))

    def span(self, leaf_start: int, leaf_stop: int) -> tuple[int, int]:
        """Flat elements `(start, stop)` covered by the leaves `[leaf_start, leaf_stop)`."""
        if not 0 <= leaf_start <= leaf_stop <= self.num_leaves:
            raise ValueError(f"no leaves [{leaf_start}, {leaf_stop}) in a layout of {self.num_leaves}")
        return self.bounds[leaf_start], self.bounds[leaf_stop]

    def parts(self, n: int) -> list[tuple[int, int]]:
        """`cut` into `n` parts of about equally many elements."""
        return self.cut([1] * n)

    def cut(self, shares: Sequence[int]) -> list[tuple[int, int]]:
        """Cut the leaves into contiguous runs `(leaf_start, leaf_stop)` whose elements are about as `shares`, all > 0.

        Every run has at least one leaf, so of more shares than leaves the first `num_leaves` count. A cut falls on the
        first leaf boundary at or after the shares before it, integers only.
        """
        if not shares or min(shares) < 1:
            raise ValueError(f"at least one part is needed, of a share of at least 1, got {shares}")
        sums = list(accumulate(shares[: self.num_leaves]))
        n = len(sums)
        cuts = [0]
        for k, before in enumerate(sums[:-1], 1):
            cut = bisect_left(self.bounds, -(-before * self.numel // sums[-1]))
            cuts.append(min(max(cut, cuts[-1] + 1), self.num_leaves - (n - k)))
        cuts.append(self.num_leaves)
        return list(pairwise(cuts))

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """One flat fp32 CPU vector `[numel]` from tensors of any device and float type, one copy each.

        Raises ValueError when names or shapes are not this layout's.
        """
        if named.keys() != self.shapes.keys():
            odd = sorted(named.keys() ^ self.shapes.keys())[0]
            raise ValueError(f"tensors do not fit the layout: {odd} is in only one of them")
        flat = torch.empty(self.numel, dtype=torch.float32)
        for name, view in self.unflatten(flat).items():
            tensor = named[name].detach()
            if tensor.shape != view.shape:
                raise ValueError(f"{name}: shape {tuple(tensor.shape)} here, {tuple(view.shape)} in the layout")
            view.copy_(tensor)
        return flat

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views into `flat` (`[numel]`, contiguous) by name, in canonical order."""
        if flat.shape != (self.numel,):
            raise ValueError(f"a flat vector of this layout has {self.numel} elements, got shape {tuple(flat.shape)}")
        pieces = flat.split([prod(shape) for shape in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}
