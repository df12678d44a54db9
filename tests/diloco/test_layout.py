"""The cut is contiguous, respects slices and sizes, depends on nothing but names, shapes and leaf size."""

from itertools import pairwise
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.layout import SLICES, Layout

shapes = st.dictionaries(
    st.text("abc.", min_size=1, max_size=4),
    st.lists(st.integers(1, 12), min_size=1, max_size=3).map(lambda d: (8 * d[0], *d[1:])),
    min_size=1,
    max_size=5,
)


def test_known_cut() -> None:
    layout = Layout.of([("w", (16, 5)), ("b", (8,))], leaf_size=4)
    assert list(layout.shapes) == ["b", "w"]
    assert layout.numel == 88
    assert layout.leaves[:9] == [(i, i + 1) for i in range(8)] + [(8, 12)]
    assert layout.leaves[8:12] == [(8, 12), (12, 16), (16, 18), (18, 22)]
    assert layout.num_leaves == 8 + 8 * 3


@settings(max_examples=60, deadline=None)
@given(shapes, st.integers(1, 70))
def test_leaves_cover_everything_within_slices(named: dict[str, tuple[int, ...]], leaf_size: int) -> None:
    layout = Layout.of(named.items(), leaf_size)
    edges, position = {0}, 0
    for name in sorted(named):
        for _ in range(SLICES):
            position += prod(named[name]) // SLICES
            edges.add(position)
    assert layout.numel == position
    assert layout.leaves[0][0] == 0 and layout.leaves[-1][1] == layout.numel
    assert all(a[1] == b[0] for a, b in pairwise(layout.leaves))
    assert all(0 < b - a <= leaf_size for a, b in layout.leaves)
    assert edges <= {a for a, _ in layout.leaves} | {layout.numel}
    assert layout.leaves == Layout.of(reversed(list(named.items())), leaf_size).leaves


@settings(max_examples=100, deadline=None)
@given(shapes, st.integers(1, 200), st.integers(1, 300))
def test_parts_are_balanced_and_never_empty(named: dict[str, tuple[int, ...]], leaf_size: int, n: int) -> None:
    layout = Layout.of(named.items(), leaf_size)
    parts = layout.parts(n)
    assert len(parts) == min(n, layout.num_leaves)
    assert parts[0][0] == 0 and parts[-1][1] == layout.num_leaves
    assert all(a[1] == b[0] for a, b in pairwise(parts))
    largest = max(b - a for a, b in layout.leaves)
    for part in parts:
        start, stop = layout.span(*part)
        assert 0 < stop - start <= -(-layout.numel // len(parts)) + largest


@settings(max_examples=100, deadline=None)
@given(shapes, st.integers(1, 40), st.lists(st.integers(1, 16), min_size=1, max_size=40))
def test_cuts_are_as_the_shares_and_never_empty(
    named: dict[str, tuple[int, ...]], leaf_size: int, shares: list[int]
) -> None:
    layout = Layout.of(named.items(), leaf_size)
    parts = layout.cut(shares)
    assert len(parts) == min(len(shares), layout.num_leaves)
    assert parts[0][0] == 0 and parts[-1][1] == layout.num_leaves
    assert all(a[1] == b[0] for a, b in pairwise(parts))
    largest, counted = max(b - a for a, b in layout.leaves), shares[: len(parts)]
    for (start, stop), share in zip(parts, counted, strict=True):
        first, last = layout.span(start, stop)
        if stop - start > 1 and len(parts) < layout.num_leaves:
            assert last - first <= share * layout.numel / sum(counted) + len(parts) * largest


def test_flatten_and_unflatten() -> None:
    named = {"b": torch.randn(8, 3), "a": torch.randn(16), "c": torch.randn(8, 2, 2).to(torch.bfloat16)}
    layout = Layout.of([(k, v.shape) for k, v in named.items()], 10)
    flat = layout.flatten(named)
    assert flat.dtype == torch.float32
    assert torch.equal(flat, torch.cat([named[k].float().flatten() for k in "abc"]))
    views = layout.unflatten(flat)
    assert list(views) == ["a", "b", "c"] and all(torch.equal(views[k], named[k].float()) for k in views)
    views["b"].zero_()
    assert not flat[16:40].any()


def test_flatten_takes_gradients_of_nothing() -> None:
    layout = Layout.of([("w", (8,))], 4)
    assert not layout.flatten({"w": torch.nn.Parameter(torch.ones(8))}).requires_grad


@pytest.mark.parametrize(
    ("pairs", "leaf_size", "why"),
    [
        ([("w", (12, 3))], 4, "multiple of 8"),
        ([("w", ())], 4, "multiple of 8"),
        ([("w", (8, 0))], 4, "multiple of 8"),
        ([("w", (8,)), ("w", (16,))], 4, "same name"),
        ([("w", (8,))], 0, "leaf_size"),
        ([], 4, "at least one tensor"),
    ],
)
def test_refuses(pairs: list, leaf_size: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Layout.of(pairs, leaf_size)


def test_refuses_what_does_not_fit() -> None:
    layout = Layout.of([("w", (8, 2))], 4)
    with pytest.raises(ValueError, match="shape"):
        layout.flatten({"w": torch.zeros(16)})
    with pytest.raises(ValueError, match="x is in only one"):
        layout.flatten({"w": torch.zeros(8, 2), "x": torch.zeros(1)})
    with pytest.raises(ValueError, match="16 elements"):
        layout.unflatten(torch.zeros(15))
    with pytest.raises(ValueError, match="no leaves"):
        layout.span(0, layout.num_leaves + 1)
    with pytest.raises(ValueError, match="at least one part"):
        layout.parts(0)
    with pytest.raises(ValueError, match="share of at least 1"):
        layout.cut([2, 0])
