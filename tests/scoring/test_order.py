"""Which places in a ranking deserve more samples."""

from itertools import pairwise

import numpy as np

from subnet.scoring.order import undecided


def rows(*means: float, spread: float = 0.01, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"h{n}": mean + rng.normal(0, spread, 16) for n, mean in enumerate(means)}


def test_clear_places_need_nothing_and_close_ones_more() -> None:
    assert undecided(rows(0.1, 0.2, 0.3, 0.4)) == set()
    close = rows(0.1, 0.2, 0.3, 0.4)
    close["h3"] = close["h2"] + 0.001 + np.tile([0.01, -0.01], 8)  # 0.4 standard errors apart
    assert undecided(close) == {"h2", "h3"}
    assert undecided({}) == undecided(rows(0.1)) == set()


def test_differences_are_paired_over_samples() -> None:
    hard = np.random.default_rng(0).normal(0, 1.0, 16)
    assert undecided({"a": hard, "b": hard + 0.01 + np.linspace(0, 0.001, 16), "c": hard + 9, "d": hard + 18}) == set()


def test_at_most_half_are_looked_at_again_the_closest_first() -> None:
    close = rows(*[0.1] * 8, seed=2)
    chosen = undecided(close)
    assert 2 <= len(chosen) <= 4
    means = sorted((float(x.mean()), h) for h, x in close.items())
    gaps = {(low, high): close[high] - close[low] for (_, low), (_, high) in pairwise(means)}
    closest = min(gaps, key=lambda pair: gaps[pair].mean() / gaps[pair].std(ddof=1))
    assert set(closest) <= chosen


def test_exact_ties_are_open_and_broken_contributions_are_last_without_further_ado() -> None:
    same = np.full(16, 0.1)
    ties = {"a": same, "b": same, "c": same + 1, "d": same + 2}
    assert undecided(ties) == set()  # equal on every sample: no other sample would tell either
    broken = {"a": np.full(16, -np.inf), "b": np.full(16, np.nan)}
    assert undecided(broken | rows(0.1, 0.2)) == set()


def test_the_order_of_the_table_does_not_matter() -> None:
    close = rows(*[0.1] * 6, seed=4)
    assert undecided(dict(reversed(close.items()))) == undecided(close)
