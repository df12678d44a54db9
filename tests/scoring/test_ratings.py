import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.scoring.ratings import PRIOR_MU, Rating, beats, ranks_of, update

BETA, TAU = 25 / 6, 25 / 300


def test_ranks_start_at_one_and_share_ties() -> None:
    assert ranks_of({"a": 0.0, "b": -0.0, "c": 1.0, "d": -math.inf}) == {"c": 1, "a": 2, "b": 2, "d": 4}


def test_known_match() -> None:
    """Weng and Lin's algorithm 4 by hand for two new players: c^2 = 2 (sigma^2 + beta^2), p = 1/2, and the loser's
    and winner's mu move by sigma^2 / c * p."""
    sigma2 = (25 / 3) ** 2 + TAU**2
    step = sigma2 / math.sqrt(2 * (sigma2 + BETA**2)) / 2
    after = update({}, {"loser": -1.0, "winner": 2.0}, BETA, TAU)
    assert after["winner"].mu == pytest.approx(PRIOR_MU + step, abs=1e-12)
    assert after["loser"].mu == pytest.approx(PRIOR_MU - step, abs=1e-12)
    assert after["winner"].sigma == after["loser"].sigma < 25 / 3


@given(st.permutations([-0.2, -0.01, 0.0, 0.001, 0.3]))
@settings(max_examples=60, deadline=None)
def test_equal_players_end_in_the_order_of_their_improvements(values: list[float]) -> None:
    """An exact 0.0, wherever it stands in the list, is neither missing nor a winner."""
    improvements = {f"hotkey{place}": value for place, value in enumerate(values)}
    after = update({}, improvements, BETA, TAU)
    by_value = sorted(improvements, key=improvements.__getitem__)
    assert sorted(improvements, key=lambda hotkey: after[hotkey].mu) == by_value
    assert len({after[hotkey].mu for hotkey in improvements}) == 5


@given(st.permutations(range(24)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_tables_does_not_matter_to_the_last_bit(order: list[int]) -> None:
    def played(places: list[int]) -> dict[str, Rating]:
        first = update({}, {f"h{n}": math.sin(n) for n in places}, BETA, TAU)
        return update(first, {f"h{n}": round(math.cos(n)) for n in places}, BETA, TAU)

    assert played(order) == played(list(range(24)))


def test_ties_of_equal_players_stay_equal() -> None:
    after = update({}, {"a": 0.0, "b": 0.0, "c": 1.0}, BETA, TAU)
    assert after["a"] == after["b"]


def test_who_does_not_play_keeps_the_rating_and_one_alone_learns_nothing() -> None:
    ratings = {"idle": Rating(30.0, 2.0)}
    assert update(ratings, {"a": 1.0, "b": 0.0}, BETA, TAU)["idle"] == Rating(30.0, 2.0)
    assert update(ratings, {"alone": 1.0}, BETA, TAU) == {"idle": Rating(30.0, 2.0), "alone": Rating()}
    assert update(ratings, {"idle": 1.0}, BETA, TAU) == ratings
    assert update(ratings, {}, BETA, TAU) == ratings


def test_a_better_result_never_lowers_the_rating() -> None:
    others = {"b": 0.1, "c": 0.2, "d": 0.3}
    mus = [update({}, {**others, "a": value}, BETA, TAU)["a"].mu for value in (-math.inf, 0.0, 0.15, 0.25, 9.0)]
    assert mus == sorted(mus) and mus[0] < mus[-1]


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        update({}, {"a": math.nan, "b": 1.0}, BETA, TAU)


def test_beats_is_a_probability_that_needs_both_to_be_known() -> None:
    assert beats(Rating(), Rating(), BETA) == 0.5
    assert beats(Rating(30, 1), Rating(20, 1), BETA) == pytest.approx(1 - beats(Rating(20, 1), Rating(30, 1), BETA))
    assert 0.9 < beats(Rating(30, 1), Rating(20, 1), BETA) < 1
    assert beats(Rating(30, 8), Rating(20, 1), BETA) < beats(Rating(30, 1), Rating(20, 1), BETA)
