"""Assignment: a bijection per epoch, disjoint between uids and rounds, recomputable at any point."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.data.assignment import held_out_ids, own_ids, permute, sample_ids

few = settings(max_examples=40, deadline=None)


def digest(ids: np.ndarray) -> str:
    return hashlib.blake2b(ids.astype("<i8").tobytes(), digest_size=16).hexdigest()


def test_golden_vectors() -> None:
    """Every peer must compute these; another result is another protocol."""
    assert permute(b"key", 10, np.arange(10)).tolist() == [2, 6, 7, 0, 5, 8, 9, 4, 1, 3]
    assert sample_ids(38, 70_504, 0, 0, 256, 8).tolist() == [60529, 34824, 54614, 12642, 32826, 39974, 11551, 30929]
    assert digest(sample_ids(b"seed", 10**9, 12_345, 17, 256, 1000)) == "ccfe4c7580f1d1749443a0f113098546"
    assert digest(held_out_ids(b"\x01" * 32, 1438, 64)) == "5f20ca096a116bc1fd174f495d654747"
    assert digest(own_ids(b"\x01" * 32, np.arange(100, 220), 16)) == "f873054fd8247643a096581778750f28"


@few
@given(size=st.integers(1, 5000), key=st.binary(max_size=8))
def test_permute_is_a_bijection(size: int, key: bytes) -> None:
    assert np.array_equal(np.sort(permute(key, size, np.arange(size))), np.arange(size))


@few
@given(size=st.integers(2, 2**62), key=st.binary(max_size=8), data=st.data())
def test_permute_is_injective_on_huge_ranges_and_pointwise(size: int, key: bytes, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20, unique=True)))
    out = permute(key, size, positions)
    assert len(set(out.tolist())) == len(positions) and out.min() >= 0 and out.max() < size
    assert [int(permute(key, size, positions[i : i + 1])[0]) for i in range(len(positions))] == out.tolist()


def test_permutations_look_random() -> None:
    """Mean displacement of a random permutation is size / 3; neighbours do not stay neighbours; keys matter."""
    size = 100_000
    out = permute(b"a", size, np.arange(size))
    assert abs(np.abs(out - np.arange(size)).mean() / (size / 3) - 1) < 0.01
    assert abs(np.abs(np.diff(out)).mean() / (size / 3) - 1) < 0.01
    assert (out == permute(b"b", size, np.arange(size))).sum() < 12
    # chi-square of where the first tenth lands, 100 cells: mean 99, standard deviation 14
    cells = np.bincount(out[:10_000] * 100 // size, minlength=100)
    assert 40 < ((cells - 100) ** 2 / 100).sum() < 180


@few
@given(
    epoch_size=st.integers(16, 3000),
    max_uids=st.integers(1, 16),
    per_round=st.integers(1, 40),
    seed=st.integers(0, 2**63 - 1),
)
def test_no_sample_twice_within_an_epoch(epoch_size: int, max_uids: int, per_round: int, seed: int) -> None:
    share = epoch_size // max_uids
    rounds = share // per_round  # the rounds that lie wholly in the first epoch
    seen = [
        sample_ids(seed, epoch_size, r, uid, max_uids, per_round)
        for r in range(min(rounds, 20))
        for uid in range(max_uids)
    ]
    everything = np.concatenate([*seen, np.empty(0, np.int64)])
    assert len(np.unique(everything)) == len(everything)
    assert everything.size == 0 or (everything.min() >= 0 and everything.max() < epoch_size)


@few
@given(
    epoch_size=st.integers(16, 3000), max_uids=st.integers(1, 16), uid=st.integers(0, 15), per_round=st.integers(1, 40)
)
def test_an_epoch_is_used_up_and_then_keyed_anew(epoch_size: int, max_uids: int, uid: int, per_round: int) -> None:
    uid %= max_uids
    share = epoch_size // max_uids
    rounds = -(-2 * share // per_round)
    stream = np.concatenate([sample_ids(1, epoch_size, r, uid, max_uids, per_round) for r in range(rounds)])
    first, second = stream[:share], stream[share : 2 * share]
    assert len(set(first.tolist())) == len(set(second.tolist())) == share
    assert share < 8 or first.tolist() != second.tolist()


@few
@given(offset=st.integers(0, 30), count=st.integers(0, 30), round_index=st.integers(0, 10**9))
def test_any_piece_of_a_round_is_the_same_as_in_the_whole(offset: int, count: int, round_index: int) -> None:
    whole = sample_ids(9, 1000, round_index, 3, 8, 60)
    piece = sample_ids(9, 1000, round_index, 3, 8, count, offset, per_round=60)
    assert piece.tolist() == whole[offset : offset + count].tolist()


def test_cost_does_not_depend_on_epoch_or_round() -> None:
    ids = sample_ids(1, 10**15, 10**9, 200, 256, 64)  # an O(epoch) version would run out of memory
    assert len(set(ids.tolist())) == 64


@pytest.mark.parametrize(
    "arguments",
    [
        {"epoch_size": 5, "max_uids": 8, "uid": 0},
        {"uid": 8},
        {"uid": -1},
        {"round_index": -1},
        {"count": -1},
        {"count": 8, "offset": 1},  # a piece needs per_round: else rounds would overlap
        {"count": 8, "offset": 1, "per_round": 8},
    ],
)
def test_refuses_what_would_overlap(arguments: dict[str, int]) -> None:
    defaults = {"seed": 1, "epoch_size": 1000, "round_index": 0, "uid": 0, "max_uids": 8, "count": 4}
    with pytest.raises(ValueError):
        sample_ids(**{**defaults, **arguments})


def test_draws_are_distinct_bounded_and_keyed() -> None:
    held = held_out_ids(b"beacon", 100, 32)
    assert len(set(held.tolist())) == 32 and held.max() < 100
    assert sorted(held_out_ids(b"beacon", 10, 32).tolist()) == list(range(10))
    assert held.tolist() != held_out_ids(b"beacoN", 100, 32).tolist()
    ids = np.arange(1000, 1120)
    own = own_ids(b"beacon", ids, 16)
    assert len(set(own.tolist())) == 16 and set(own.tolist()) <= set(ids.tolist())
    assert own_ids(b"beacon", ids[:0], 16).size == 0
