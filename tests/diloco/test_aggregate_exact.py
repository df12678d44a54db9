"""The exact kernels, bit for bit against numpy written another way; nothing but the values decides a bit."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.aggregate import exact
from subnet.diloco.aggregate.exact import squared_distance, trimmed_sum, weighted_mean_of_senders, weighted_sum

Values = Callable[..., torch.Tensor]

BLOCK, LANES = 2**16, 2**12
"""As in the code; they are part of the result, so changing them there must break the tests here."""
SIZES = (1, 5, LANES + 1, BLOCK - 1, BLOCK, 2 * BLOCK + 12_345)
GOLDEN_DISTANCES = [
    "0x1.0f5317598c439p-4",
    "0x1.0f1618b888c2ap-4",
    "0x1.0db11544f728cp-4",
    "0x1.0f7e03dd057f0p-4",
    "0x1.0f05646c131bap-4",
    "0x1.0fb062cdbcd98p-4",
]


def bits(x: torch.Tensor | np.ndarray) -> bytes:
    return x.tobytes() if isinstance(x, np.ndarray) else x.numpy().tobytes()


def uneven(values: Values, n: int, seed: int) -> torch.Tensor:
    """Products of two even numbers: of all magnitudes, so that every addition of their squares rounds."""
    return values(n, seed) * values(n, seed + 100, 1.0)


def squared_in_numpy(x: np.ndarray, scale: float, centre: np.ndarray, lane_count: int = LANES) -> float:
    """The tree by its definition, on a whole padded array: no chunks, no in-place halves."""
    difference = (x * np.float32(scale) - centre).astype(np.float64)
    rows = np.pad(difference * difference, (0, -len(x) % BLOCK)).reshape(-1, BLOCK)
    while rows.shape[1] > lane_count:
        half = rows.shape[1] // 2
        rows = rows[:, :half] + rows[:, half:]
    lanes = np.zeros(lane_count)
    for row in rows:
        lanes = lanes + row
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return float(lanes[0])


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", [1.0, float(np.float32(0.3))])
def test_squared_distance_by_its_definition(values: Values, n: int, scale: float) -> None:
    x, centre = uneven(values, n, 1), uneven(values, n, 2)
    before = bits(x), bits(centre)
    distance = squared_distance(x, scale, centre)
    assert distance.hex() == squared_in_numpy(x.numpy(), scale, centre.numpy()).hex()
    true = math.fsum(((x * scale - centre).double() ** 2).tolist())
    assert distance == pytest.approx(true, rel=1e-13)
    assert (bits(x), bits(centre)) == before


def test_golden_distance(values: Values, threads: Callable[[int], None]) -> None:
    pairs = [(uneven(values, 400_001, seed), uneven(values, 400_001, seed + 50)) for seed in range(6)]
    for count in (1, 2, 3):
        threads(count)
        assert [squared_distance(x, 0.75, centre).hex() for x, centre in pairs] == GOLDEN_DISTANCES
    for other in (LANES // 2, LANES * 2, BLOCK):
        shown = [squared_in_numpy(x.numpy(), 0.75, centre.numpy(), other).hex() for x, centre in pairs]
        assert shown != GOLDEN_DISTANCES, "these vectors would not show another order"


def test_squared_distance_neither_overflows_nor_vanishes() -> None:
    for power in (2.0**100, 2.0**-100):
        assert squared_distance(torch.full((4,), power), 1.0, torch.zeros(4)) == 4.0 * power * power


@pytest.mark.parametrize("n", range(1, 10))
def test_the_network_puts_ranks_on_wires(n: int) -> None:
    """Every 0/1 input suffices (Knuth's zero-one principle), for every number of values dropped."""
    for drop in range((n - 1) // 2 + 1):
        for word in itertools.product((0, 1), repeat=n):
            wires = list(word)
            for low, high, low_used, high_used in exact._network(n, drop):
                pair = min(wires[low], wires[high]), max(wires[low], wires[high])
                # An unused end keeps what it had: it must not matter.
                wires[low], wires[high] = pair[0] if low_used else 7, pair[1] if high_used else 7
            kept = slice(drop, n - drop)
            assert wires[kept] == sorted(word)[kept]


@pytest.mark.parametrize(("n", "drop"), [(1, 0), (2, 0), (3, 1), (5, 0), (8, 3), (16, 4), (16, 7), (33, 10)])
def test_trimmed_sum_by_sorting(values: Values, n: int, drop: int) -> None:
    vectors = [values(1000, seed).mul_(2.0**13).round_() for seed in range(n)]  # many ties
    weights = [float(np.float32(1 / (3 + i % 4))) for i in range(n)]
    rows = np.stack([x.numpy() * np.float32(w) for x, w in zip(vectors, weights, strict=True)])
    rows.sort(axis=0)
    expected = rows[drop]
    for row in rows[drop + 1 : n - drop]:
        expected = expected + row
    assert np.array_equal(trimmed_sum(vectors, weights, drop).numpy(), expected)


def test_the_sign_of_a_zero_is_lost_before_the_sort() -> None:
    zeros = [torch.tensor([0.0, -0.0, -0.0]), torch.tensor([-0.0, 0.0, -0.0]), torch.tensor([-0.0, -0.0, -0.0])]
    for order in itertools.permutations(zeros):
        for drop in (0, 1):
            assert bits(trimmed_sum(order, [1.0, 0.5, 0.25], drop)) == bytes(12)


def test_mean_of_senders_in_numpy(values: Values) -> None:
    n = exact._CHUNK + 1001
    vectors = [values(n, seed) for seed in range(5)]
    for seed, x in enumerate(vectors):
        x[values(n, 10 + seed) < 2.0**-11] = -0.0 if seed % 2 else 0.0
    weights = [float(np.float32(w)) for w in (0.1, 0.3, 0.2, 0.05, 0.3)]
    shares = [float(np.float32(w)) for w in (0.1, 0.3, 0.2, 0.1, 0.3)]
    total, sent = np.zeros(n, np.float32), np.zeros(n, np.float32)
    for x, weight, share in zip(vectors, weights, shares, strict=True):
        total = total + x.numpy() * np.float32(weight)
        sent = sent + np.where(x.numpy() == 0.0, np.float32(0.0), np.float32(share))
    assert 0.1 < np.mean(sent == 0.0) < 0.4
    expected = np.divide(total, sent, out=np.zeros(n, np.float32), where=sent != 0.0)
    assert bits(weighted_mean_of_senders(vectors, weights, shares)) == bits(expected)


@pytest.mark.parametrize("chunk", [1000, 2**16, 10**9])
def test_chunks_decide_nothing(values: Values, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    vectors, weights = [values(70_001, seed) for seed in range(4)], [0.25, 0.5, 0.125, 0.125]
    kernels: list[Callable[[], torch.Tensor]] = [
        lambda: weighted_sum(vectors, weights),
        lambda: trimmed_sum(vectors, weights, 1),
        lambda: weighted_mean_of_senders(vectors, weights, weights),
    ]
    before = [bits(kernel()) for kernel in kernels]
    monkeypatch.setattr(exact, "_CHUNK", chunk)
    monkeypatch.setattr(exact, "_SORT_CHUNK", chunk)
    assert [bits(kernel()) for kernel in kernels] == before


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 7))
def test_no_order_of_vectors_changes_a_trimmed_sum(data: st.DataObject, n: int) -> None:
    element = st.floats(-(2.0**100), 2.0**100, width=32)
    rows = data.draw(st.lists(st.lists(element, min_size=3, max_size=3), min_size=n, max_size=n))
    drop = data.draw(st.integers(0, (n - 1) // 2))
    vectors, weights = [torch.tensor(row) for row in rows], [float(np.float32(1 / (i + 1))) for i in range(n)]
    order = data.draw(st.permutations(range(n)))
    shuffled = trimmed_sum([vectors[i] for i in order], [weights[i] for i in order], drop)
    assert bits(shuffled) == bits(trimmed_sum(vectors, weights, drop))
