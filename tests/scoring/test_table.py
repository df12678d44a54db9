import math

import pytest

from subnet.config import ScoringConfig
from subnet.scoring import table as table_module
from subnet.scoring.document import from_json, to_json
from subnet.scoring.loss import LossScore
from subnet.scoring.table import (
    FORGET_ROUNDS,
    WORK_EXPONENT,
    Average,
    Observation,
    ScoreTable,
    evidence_of,
    observe,
)

from .conftest import COPIER, HALF, HONEST, NOISE, ZEROS

GOOD = LossScore(0.1, 0.01, 0.1, 0.01)
USELESS = LossScore(0.0, 0.0, 0.0, 0.0)
MIXED = {"a": HONEST, "b": HALF, "c": ZEROS, "d": NOISE, "e": COPIER}


def seen(loss: LossScore | None, participation: float | None = 1.0, digest_ok: bool = True, **more) -> Observation:
    return Observation(loss, participation, digest_ok, **more)


def test_average_is_bias_corrected() -> None:
    average = Average()
    assert average.value == 0.0
    average = average.add(1.0, 0.8)
    assert average.value == 1.0
    average = average.add(0.0, 0.8)
    assert average.value == pytest.approx(0.8 * 0.2 / (0.8 * 0.2 + 0.2))


def test_evidence_is_the_work_that_the_drop_shows_against_the_best_evident_one() -> None:
    losses = {
        "best": GOOD,
        "half": LossScore(0.05, 0.01, 0.05, 0.01),
        "zeros": USELESS,
        "luck": LossScore(0.5, 0.3, 0.5, 0.3),  # the largest drop, but not significant
        "untrained": LossScore(0.0, 0.01, 0.2, 0.01),  # nothing on its own data, and no excess to tell that better
        "broken": LossScore(-math.inf, 0.0, -math.inf, 0.0),
    }
    nobody = dict.fromkeys(losses, 0.0)
    assert evidence_of({h: seen(loss) for h, loss in losses.items()}, {}, 2.0) == {
        **nobody, "best": 1.0, "half": 0.5**WORK_EXPONENT,
    }  # fmt: skip
    assert evidence_of({}, {}, 2.0) == {}
    assert evidence_of({"zeros": seen(USELESS), "absent": seen(None)}, {}, 2.0) == {"zeros": 0.0}


def test_a_crowd_of_near_nothings_does_not_become_the_norm() -> None:
    crowd = {f"c{n}": seen(LossScore(0.001, 0.0001, 0.001, 0.0001)) for n in range(20)}
    work = evidence_of({**crowd, "worker": seen(GOOD)}, {}, 2.0)
    assert max(work[hotkey] for hotkey in crowd) < 0.01


def test_who_is_known_not_to_train_on_its_data_sets_no_standard() -> None:
    everybody = {"worker": seen(GOOD), "cheat": seen(LossScore(0.4, 0.01, 0.4, 0.01), tokens=100)}
    assert evidence_of(everybody, {}, 2.0)["worker"] < 0.2
    assert evidence_of(everybody, {"cheat": -1.0}, 2.0) == {"worker": 1.0, "cheat": 1.0}
    assert evidence_of({"cheat": everybody["cheat"]}, {"cheat": -1.0}, 2.0) == {"cheat": 1.0}


def test_nobody_shows_more_work_than_the_tokens_that_it_declared() -> None:
    observed = {hotkey: seen(GOOD, tokens=1000) for hotkey in "abc"} | {"d": seen(GOOD, tokens=100)}
    assert evidence_of(observed, {}, 2.0) == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.1}


def test_last_rounds_news_is_no_work_and_near_copies_are_paid_as_one() -> None:
    observed = {
        "a": seen(GOOD),
        "stale": seen(GOOD, stale=True),
        "t1": seen(GOOD, twins=frozenset({"t2", "t3"})),
        "t2": seen(GOOD, twins=frozenset({"t1", "t3"})),
        "t3": seen(USELESS, twins=frozenset({"t1", "t2"})),
    }
    work = evidence_of(observed, {}, 2.0)
    assert work == {"a": 1.0, "stale": 0.0, "t1": 0.5, "t2": 0.5, "t3": 0.0}
    # Whoever shadows an honest peer on that peer's data is known for it soon, and then takes nothing from it.
    work = evidence_of(observed, {"t1": 6.0, "t2": -3.0}, 2.0)
    assert (work["t1"], work["t2"]) == (1.0, 0.0)
    work = evidence_of(observed, {"t1": -4.0, "t2": -3.0}, 2.0)
    assert work["t1"] + work["t2"] == 1.0


def test_two_validators_with_equal_inputs_hold_bit_equal_tables(season) -> None:
    one, other = season(seed=3), season(seed=3)
    one.play(MIXED, 8)
    other.play(MIXED, 8)
    assert to_json(one.table) == to_json(other.table)


def test_the_order_of_observations_does_not_matter(cfg) -> None:
    drops = {"a": 0.1, "b": 0.0, "c": 0.3}
    forth = {h: seen(LossScore(drop, 0.0, drop, 0.01, drop, 0.01), 0.9) for h, drop in drops.items()}
    forward = observe(ScoreTable(), 0, forth, cfg)
    backward = observe(ScoreTable(), 0, dict(reversed(forth.items())), cfg)
    assert to_json(forward) == to_json(backward)
    assert list(forward.rows) == list(backward.rows)


def test_observe_leaves_its_argument_alone(cfg) -> None:
    before = observe(ScoreTable(), 0, {"a": seen(GOOD), "b": seen(GOOD)}, cfg)
    text = to_json(before)
    observe(before, 1, {"b": seen(USELESS, 0.0, False)}, cfg)
    assert to_json(before) == text


def test_present_but_not_evaluated_keeps_rating_evidence_and_odds(cfg) -> None:
    shown = LossScore(0.1, 0.01, 0.1, 0.01, 0.05, 0.01)
    before = observe(ScoreTable(), 0, {"a": seen(shown), "b": seen(USELESS)}, cfg)
    after = observe(before, 1, {"a": seen(None, 0.5), "b": seen(GOOD)}, cfg)
    for name in ("rating", "evidence", "trained"):
        assert getattr(after.rows["a"], name) == getattr(before.rows["a"], name)
    assert after.rows["a"].trained > 0
    assert after.rows["a"].participation.value < 1
    assert after.rows["a"].last_round == 1


def test_a_wrong_digest_and_a_missed_exchange_lower_their_averages_only(cfg) -> None:
    row = observe(ScoreTable(), 0, {"a": seen(GOOD, 0.25, False)}, cfg).rows["a"]
    assert (row.evidence.value, row.participation.value, row.digest.value) == (1.0, 0.25, 0.0)


def test_where_nothing_can_be_said_of_the_exchange_nothing_is_held_against_anybody(cfg) -> None:
    before = observe(ScoreTable(), 0, {"a": seen(GOOD, 0.75)}, cfg)
    after = observe(before, 1, {"a": seen(GOOD, None), "new": seen(GOOD, None)}, cfg)
    assert after.rows["a"].participation == before.rows["a"].participation
    assert after.rows["new"].participation.weight == 0


def test_absence_fades_evidence_and_the_row_is_forgotten_in_the_end(cfg) -> None:
    table = observe(ScoreTable(), 0, {"gone": seen(GOOD)}, cfg)
    faded = [table.rows["gone"].evidence.value]
    for number in range(1, 6):
        table = observe(table, number, {"here": seen(GOOD)}, cfg)
        faded.append(table.rows["gone"].evidence.value)
    assert faded == sorted(faded, reverse=True) and len(set(faded)) == 6
    assert table.rows["gone"].last_round == 0
    assert "gone" in observe(table, FORGET_ROUNDS, {}, cfg).rows
    assert "gone" not in observe(table, FORGET_ROUNDS + 1, {}, cfg).rows


def test_rounds_the_validator_missed_are_held_against_nobody(cfg) -> None:
    table = observe(observe(ScoreTable(), 0, {"a": seen(GOOD)}, cfg), 40, {"a": seen(GOOD)}, cfg)
    assert table.rows["a"].evidence.value == 1.0


@pytest.mark.parametrize("again", [5, 4])
def test_a_round_counts_once(cfg, again: int) -> None:
    table = observe(ScoreTable(), 5, {}, cfg)
    with pytest.raises(ValueError, match=f"round {again} is not after round 5"):
        observe(table, again, {}, cfg)


def test_the_table_is_bounded(cfg, monkeypatch) -> None:
    monkeypatch.setattr(table_module, "MAX_ROWS", 2)
    with pytest.raises(ValueError, match="at most 2"):
        observe(ScoreTable(), 0, {name: seen(None) for name in "abc"}, cfg)


@pytest.mark.parametrize("participation", [-0.1, 1.1, math.nan])
def test_participation_is_a_share(participation: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        seen(None, participation)


def test_zeros_tie_with_nothing_and_what_is_stale_counts_as_nothing(cfg) -> None:
    observed = {"a": seen(GOOD), "zeros": seen(USELESS), "stale": seen(GOOD, stale=True)}
    table = observe(ScoreTable(), 0, observed, cfg)
    assert table.rows["zeros"].rating == table.rows["stale"].rating == table.nothing
    assert table.rows["a"].rating.mu > table.nothing.mu


def test_a_restart_changes_nothing(season) -> None:
    straight, restarted = season(seed=5), season(seed=5)
    straight.play(MIXED, 6)
    restarted.play(MIXED, 3)
    restarted.table = from_json(to_json(restarted.table))
    restarted.play(MIXED, 3)
    assert restarted.table == straight.table
    assert to_json(restarted.table) == to_json(straight.table)


def test_a_word_that_is_proven_wrong_costs_the_pay_of_many_rounds() -> None:
    cfg = ScoringConfig()
    table = observe(ScoreTable(), 0, {"liar": seen(GOOD, 0.0, faulty=True), "other": seen(GOOD)}, cfg)
    assert table.rows["liar"].barred_until == cfg.replay_penalty and table.rows["other"].barred_until == -1
