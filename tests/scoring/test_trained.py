"""Whether a peer trains on its own data: who passes, who fails, and whom a crowd of cheats cannot move."""

import math

import pytest

from subnet.scoring.loss import LossScore
from subnet.scoring.trained import PASSED, STEP, SURE, probability, reference, update

from .conftest import COPIER, HALF, HONEST, Miner


def shown(excess: float, error: float = 0.005) -> LossScore:
    return LossScore(0.1, 0.01, 0.1, 0.01, excess, error)


def test_probability_is_one_half_for_a_newcomer_and_nothing_for_who_failed() -> None:
    assert probability(0.0) == 0.5
    assert probability(-PASSED) == 0.0 < probability(-PASSED + 0.01) < 0.06
    assert probability(PASSED) == pytest.approx(0.95, abs=0.01)
    assert probability(SURE) > 0.997


def test_reference_is_what_training_gives_in_this_round_and_known_cheats_weigh_nothing() -> None:
    workers = {f"w{n}": shown(0.05) for n in range(4)}
    cheats = {f"c{n}": shown(0.0) for n in range(3)}
    level, sure = reference(workers | cheats, {})
    assert level == 0.05 and sure == pytest.approx(1 - 1.25 * 0.1 / math.sqrt(3.5))
    crowd = {f"c{n}": shown(9.0) for n in range(3)}  # a minority that overfits does not set the standard
    assert reference(workers | crowd, {})[0] == 0.05
    many = {f"c{n}": shown(0.0) for n in range(40)}
    assert reference(workers | many, dict.fromkeys(many, -PASSED))[0] == 0.05
    for unclear in ({}, {"a": shown(0.1, math.inf)}, {"a": shown(-0.1)}, {"a": shown(0.001)}):
        assert reference(unclear, {}) == (0.0, 0.0)


def test_a_round_that_cannot_tell_changes_little() -> None:
    noisy = {f"w{n}": shown(0.001 * n, 0.05) for n in range(4)}
    assert all(abs(odds) < 0.05 for odds in update({}, noisy).values())
    assert update({"a": 1.5}, {"a": shown(0.1, math.inf)}) == {"a": 1.5}
    assert update({"a": 1.5}, {}) == {}


def test_one_round_says_at_most_so_much_and_odds_stay_where_change_is_noticed() -> None:
    losses = {f"w{n}": shown(0.05, 0.0001) for n in range(4)} | {"c": shown(-99.0, 0.0001)}
    odds: dict[str, float] = {}
    odds = update(odds, losses)
    assert odds["c"] == -STEP and odds["w0"] <= STEP
    for _ in range(9):
        odds = update(odds, losses)
    assert odds["c"] == -SURE and odds["w0"] == SURE


@pytest.mark.parametrize("seed", range(6))
def test_within_ten_evaluations_honest_newcomers_pass_and_who_trains_on_other_data_does_not(season, seed) -> None:
    played = season(seed)
    crew = {f"h{n}": HONEST for n in range(5)}
    played.play(crew, 5)
    played.play({**crew, "new": HONEST, "slow": HALF, "copier": COPIER, "partly": Miner(own=0.1)}, 10)
    odds = {hotkey: row.trained for hotkey, row in played.table.rows.items()}
    assert odds["new"] >= PASSED and odds["slow"] >= PASSED
    assert odds["copier"] <= -PASSED and odds["partly"] <= -PASSED


@pytest.mark.parametrize("copiers", [4, 8])
def test_a_crowd_of_off_task_trainers_does_not_make_itself_the_norm(season, copiers) -> None:
    played = season(3)
    everybody = {f"h{n}": HONEST for n in range(4)} | {f"c{n}": COPIER for n in range(copiers)}
    paid = played.play(everybody, 10)
    assert sum(share for hotkey, share in paid.items() if hotkey[0] == "c") < 0.02


def test_who_stops_training_is_noticed_within_ten_rounds(season) -> None:
    played = season(1)
    crew = {f"h{n}": HONEST for n in range(5)}
    assert played.play({**crew, "turncoat": HONEST}, 20)["turncoat"] > 0.1
    assert "turncoat" not in played.play({**crew, "turncoat": COPIER}, 10)
