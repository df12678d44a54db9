"""The mean, bit for bit against numpy, with pinned hashes; the weights by hand."""

import math
from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subnet.diloco.aggregate import clip_factors, mean_weights, norm, reduce_part

N = 600_001
"""More than two chunks, and no multiple of any vector width."""
TOKENS = [1000, 3000, 1, 777]
NORMS = [1.0, 3.7, 0.4, 1.3]


@pytest.fixture
def members(values: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [values(N, seed) for seed in range(4)]


def in_numpy(members: list[torch.Tensor], weights: list[float]) -> np.ndarray:
    total = members[0].numpy() * np.float32(weights[0])
    for x, weight in zip(members[1:], weights[1:], strict=True):
        total = total + x.numpy() * np.float32(weight)
    return total


def test_golden_mean(members: list[torch.Tensor], threads: Callable[[int], None]) -> None:
    expected = in_numpy(members, mean_weights(TOKENS, NORMS))
    for count in (1, 2, 3):
        threads(count)
        mean = reduce_part(members, TOKENS, NORMS)
        assert np.array_equal(mean.numpy().view(np.int32), expected.view(np.int32))
        assert blake2b(mean.numpy().tobytes(), digest_size=16).hexdigest() == "7c9292e7a8b0697821034e7e8702a914"


def test_the_golden_data_would_show_a_fused_or_reordered_sum(members: list[torch.Tensor]) -> None:
    weights = mean_weights(TOKENS, NORMS)
    right = reduce_part(members, TOKENS, NORMS)
    fused = members[0].double() * weights[0]
    for x, weight in zip(members[1:], weights[1:], strict=True):
        fused = (fused.float().double() + x.double() * weight).float().double()  # one rounding per member
    assert not torch.equal(fused.float(), right)
    assert not torch.equal(reduce_part(members[::-1], TOKENS[::-1], NORMS[::-1]), right)


def test_an_absent_member_is_no_member(members: list[torch.Tensor]) -> None:
    a, _, c, d = members
    gap = reduce_part([a, None, c, d], TOKENS, NORMS)
    rest = [0, 2, 3]
    assert torch.equal(gap, reduce_part([a, c, d], [TOKENS[i] for i in rest], [NORMS[i] for i in rest]))
    before = a.clone()
    alone = reduce_part([a, None], [5, 7], [2.0, 1.0])
    assert torch.equal(alone, a) and torch.equal(a, before)
    with pytest.raises(ValueError, match="nobody"):
        reduce_part([None, None], [1, 1], [1.0, 1.0])


def test_weights_by_hand() -> None:
    assert mean_weights([1, 3], [1.0, 1.0]) == [0.25, 0.75]
    assert mean_weights([1, 1, 2], [1.0, 4.0, 1.0]) == [0.25, 0.0625, 0.5]  # clipped to the median norm 1
    assert mean_weights([1, 1], [2.0, 6.0]) == [0.5, float(np.float32(0.5 * (4.0 / 6.0)))]  # median of two: 4
    assert mean_weights([1, 1, 2], [0.0, 0.0, 9.0]) == [0.25, 0.25, 0.5]  # zeros set no scale
    assert mean_weights([4, 4], [0.0, 0.0]) == [0.5, 0.5]
    assert mean_weights([0, 4], [1.0, 1.0]) == [0.0, 1.0]
    assert clip_factors([0.0, 1.0, 2.0, 8.0]) == [1.0, 1.0, 1.0, 0.25]
    assert clip_factors([]) == []


@given(
    st.lists(
        st.tuples(st.integers(0, 10**15), st.floats(0.0, 1e300, allow_subnormal=False)), min_size=1, max_size=20
    ).filter(lambda rows: any(t for t, _ in rows))
)
def test_weights_are_bounded_fp32(rows: list[tuple[int, float]]) -> None:
    weights = mean_weights([t for t, _ in rows], [n for _, n in rows])
    assert all(0.0 <= w <= 1.0 and w == float(np.float32(w)) for w in weights)
    assert sum(weights) <= 1.0 + len(rows) * 2.0**-24


def test_a_thousandfold_outlier_is_held_to_the_median(values: Callable[..., torch.Tensor]) -> None:
    honest = [values(1000, seed) for seed in range(7)]
    everybody = [*honest, -1000.0 * honest[0]]
    norms = [norm(x) for x in everybody]
    weights = mean_weights([10] * 8, norms)
    contributions = [weight * n for weight, n in zip(weights, norms, strict=True)]
    assert contributions[-1] == pytest.approx(sorted(norms)[3] / 8, rel=0.05)


@pytest.mark.parametrize(
    ("tokens", "norms"),
    [([], []), ([1], []), ([0, 0], [1, 1]), ([1, -1], [1, 1]), ([1], [-1]), ([1], [math.nan]), ([1], [math.inf])],
)
def test_refuses_bad_declarations(tokens: list[int], norms: list[float]) -> None:
    with pytest.raises(ValueError, match=r"average|norm"):
        mean_weights(tokens, norms)


def test_norm_sums_in_fp64() -> None:
    assert norm(torch.full((200_000,), 1e-25)) == pytest.approx(1e-25 * math.sqrt(200_000), rel=1e-6)
    assert norm(torch.full((100_000,), 2.0**100)) == pytest.approx(2.0**100 * math.sqrt(100_000), rel=1e-12)
    assert norm(torch.tensor([3.0, -4.0])) == 5.0
