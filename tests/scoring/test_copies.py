"""Near-copies: what counts as one, what honest peers have in common, and last round's news."""

from __future__ import annotations

import numpy as np
import pytest

from subnet.scoring.copies import coordinates, groups, partial_correlations, stale, unexplained

SIZE = 4096


class Crowd:
    """Honest sketches of one round: a share in common, another that grows with the steps, and one of each its own;
    their cosines are 0.4 to 0.9, as measured early in training. `last` is the round before, with a share in common."""

    def __init__(self, seed: int, n: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.steps = [[16, 16, 12, 8, 4][k % 5] for k in range(n)]
        common, along = self.rng.normal(size=(2, SIZE))
        self.now = self.of(common, along)
        self.last = self.of(common + self.rng.normal(size=SIZE), along)

    def of(self, common: np.ndarray, along: np.ndarray) -> np.ndarray:
        rows = [
            s / 16 * common + (s / 16) ** 2 * 0.4 * along + 0.7 * (s / 16) ** 0.5 * self.rng.normal(size=SIZE)
            for s in self.steps
        ]
        return np.stack(rows).astype(np.float32)

    def noised(self, row: np.ndarray, part: float) -> np.ndarray:
        noise = self.rng.normal(size=SIZE) * part * np.linalg.norm(row) / np.sqrt(SIZE)
        return (row + noise).astype(np.float32)


def test_coordinates_are_distinct_sorted_and_only_the_secrets_owner_knows_them() -> None:
    chosen = coordinates(b"secret", 10**6, 1000)
    assert chosen.dtype == np.int64 and len(np.unique(chosen)) == 1000
    assert (np.diff(chosen) > 0).all() and chosen[0] >= 0 and chosen[-1] < 10**6
    assert (coordinates(b"secret", 10**6, 1000) == chosen).all()
    assert len(np.intersect1d(coordinates(b"other", 10**6, 1000), chosen)) < 10
    assert coordinates(b"secret", 5, 1000).tolist() == [0, 1, 2, 3, 4]


def test_partial_correlations_by_their_definition() -> None:
    crowd = Crowd(1, 6)
    x = crowd.now.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.eye(6)
    for i in range(6):
        for j in set(range(6)) - {i}:
            others = [k for k in range(6) if k not in (i, j)]
            directions = np.stack([x[others].sum(0), (x[others] * np.array(crowd.steps)[others, None]).sum(0)])
            q, _ = np.linalg.qr(directions.T)
            a, b = (v - q @ (q.T @ v) for v in (x[i], x[j]))
            expected[i, j] = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert partial_correlations(crowd.now, crowd.steps) == pytest.approx(expected, abs=1e-4)


def test_two_have_nobody_to_tell_what_is_common() -> None:
    crowd = Crowd(1, 2)
    cosine = crowd.now[0] @ crowd.now[1] / np.linalg.norm(crowd.now[0]) / np.linalg.norm(crowd.now[1])
    assert partial_correlations(crowd.now, crowd.steps)[0, 1] == pytest.approx(cosine, abs=1e-6)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
def test_of_honest_peers_at_any_speed_nobody_is_flagged(n: int) -> None:
    for seed in range(20):
        crowd = Crowd(seed, n)
        assert groups(crowd.now, crowd.steps) == []
        now, last = ({f"h{k}": row for k, row in enumerate(rows)} for rows in (crowd.now, crowd.last))
        assert stale(now, last, set(now)) == set()


@pytest.mark.parametrize("fast", [1, 2, 3, 4])
def test_a_few_fast_peers_among_slow_ones_have_nobody_to_tell_what_is_theirs_in_common(fast: int) -> None:
    for seed in range(10):
        crowd = Crowd(seed, 10)
        crowd.steps = [16] * fast + [4] * (10 - fast)
        common, along = crowd.rng.normal(size=(2, SIZE))
        now = crowd.of(common, 3 * along)
        assert groups(now, crowd.steps) == []
        copied = np.vstack([now, now[:1]])
        assert groups(copied, [*crowd.steps, 16]) == [frozenset({0, 10})]


@pytest.mark.parametrize("n", [2, 4, 12, 60])
@pytest.mark.parametrize("kind", ["exact", "scaled", "sign", "noise of a quarter"])
def test_copies_in_many_forms_are_found(n: int, kind: str) -> None:
    crowd = Crowd(7, n)
    a = crowd.now[0]
    copy = {"exact": a, "scaled": 1000 * a, "sign": -a, "noise of a quarter": crowd.noised(a, 0.25)}[kind]
    assert groups(np.vstack([crowd.now, copy]), [*crowd.steps, 16]) == [frozenset({0, n})]


@pytest.mark.parametrize(("honest", "sybils", "noise"), [(6, 3, 0.2), (9, 6, 0.2), (2, 3, 0.1), (2, 3, 0), (6, 20, 0)])
def test_a_crowd_of_copies_does_not_pass_for_what_is_common(honest: int, sybils: int, noise: float) -> None:
    """Seven of sixteen send one gradient, each with noise of its own; with less of it any number is found."""
    crowd = Crowd(3, honest)
    copies = [crowd.noised(crowd.now[-1], noise) for _ in range(sybils)]
    found = groups(np.vstack([crowd.now, *copies]), [*crowd.steps, *[16] * sybils])
    assert found == [frozenset(range(honest - 1, honest + sybils))]


@pytest.mark.parametrize("factor", [1.0, -0.5])
def test_who_sends_the_mean_of_all_makes_nobody_a_copier(factor: float) -> None:
    crowd = Crowd(5, 12)
    mean = factor * crowd.now.mean(0, keepdims=True)
    assert groups(np.concatenate([crowd.now, mean, mean]), [*crowd.steps, 16, 16]) == [frozenset({12, 13})]


def test_zeros_and_a_lone_peer_are_copies_of_nobody() -> None:
    crowd = Crowd(0, 4)
    zeros = np.zeros((2, SIZE), np.float32)
    assert groups(np.vstack([crowd.now, zeros]), [*crowd.steps, 16, 16]) == []
    assert groups(crowd.now[:1], [16]) == groups(crowd.now[:0], []) == []


def test_unexplained_is_what_no_earlier_one_can_make() -> None:
    crowd = Crowd(0, 4)
    mix = crowd.last[0] * 2 - crowd.last[3]
    fresh = crowd.rng.normal(size=SIZE).astype(np.float32)
    shares = unexplained(np.stack([mix, fresh, np.zeros(SIZE, np.float32)]), crowd.last)
    assert shares[0] == pytest.approx(0.0, abs=1e-6)
    assert shares[1] > 0.98 and shares[2] == 1.0
    assert unexplained(mix[None], crowd.last[:0]).tolist() == [1.0]


@pytest.mark.parametrize("n", [2, 5, 20])
def test_what_others_sent_last_round_is_stale_however_mixed_scaled_or_turned(n: int) -> None:
    crowd = Crowd(11, n)
    now, last = ({f"h{k}": row for k, row in enumerate(rows)} for rows in (crowd.now, crowd.last))
    late = {
        "copy": last["h0"], "scaled": 50 * last["h1"], "turned": -last["h0"], "noised": crowd.noised(last["h1"], 0.2),
        "mean": crowd.last.mean(0),
    }  # fmt: skip
    assert stale(now | late, last, set(now) | {"copy", "mean"}) == set(late)


def test_what_somebody_sent_itself_may_come_again() -> None:
    crowd = Crowd(11, 5)
    now, last = ({f"h{k}": row for k, row in enumerate(rows)} for rows in (crowd.now, crowd.last))
    assert stale(now | {"h4": last["h4"]}, last, set(now)) == set()
    assert stale(now | {"h3": last["h4"]}, last, set(now)) == {"h3"}
    assert stale({}, last, set()) == stale(now, {}, set(now)) == stale(now, last, set()) == set()


def test_a_crowd_of_noise_does_not_set_the_measure() -> None:
    """What is all new raises the share that counts as little; only those that helped take part in it."""
    crowd = Crowd(5, 6)
    now, last = ({f"h{k}": row for k, row in enumerate(rows)} for rows in (crowd.now, crowd.last))
    noise = {f"n{k}": crowd.rng.normal(size=SIZE).astype(np.float32) for k in range(20)}
    assert stale(now | noise, last, set(now)) == set()
