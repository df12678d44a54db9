import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.scoring import table as table_module
from subnet.scoring.loss import LossScore
from subnet.scoring.ratings import Rating
from subnet.scoring.table import (
    FORGET_ROUNDS,
    Average,
    Observation,
    Row,
    ScoreTable,
    evidence_of,
    from_json,
    observe,
    to_json,
)

GOOD = LossScore(0.1, 0.01, 0.1, 0.01)
USELESS = LossScore(0.0, 0.0, 0.0, 0.0)
MIXED = {"a": 0.05, "b": 0.04, "c": 0.0, "d": "noise"}


def test_average_is_bias_corrected() -> None:
    average = Average()
    assert average.value == 0.0
    average = average.add(1.0, 0.8)
    assert average.value == 1.0
    average = average.add(0.0, 0.8)
    assert average.value == pytest.approx(0.8 * 0.2 / (0.8 * 0.2 + 0.2))


def test_evidence_is_the_share_of_the_best_evident_drop() -> None:
    losses = {
        "best": GOOD,
        "half": LossScore(0.05, 0.01, 0.05, 0.01),
        "zeros": USELESS,
        "luck": LossScore(0.5, 0.3, 0.5, 0.3),  # the largest drop, but not significant
        "untrained": LossScore(0.0, 0.01, 0.2, 0.01),  # nothing on its own data
        "broken": LossScore(-math.inf, 0.0, -math.inf, 0.0),
    }
    expected = {"best": 1.0, "half": 0.5, "zeros": 0.0, "luck": 0.0, "untrained": 0.0, "broken": 0.0}
    assert evidence_of(losses, 2.0) == expected
    assert evidence_of({}, 2.0) == {}
    assert evidence_of({"zeros": USELESS}, 2.0) == {"zeros": 0.0}


def test_a_crowd_of_near_nothings_does_not_become_the_norm() -> None:
    crowd = {f"c{n}": LossScore(0.001, 0.0001, 0.001, 0.0001) for n in range(20)}
    assert max(evidence_of({**crowd, "worker": GOOD}, 2.0)[hotkey] for hotkey in crowd) == pytest.approx(0.01)


def test_two_validators_with_equal_inputs_hold_bit_equal_tables(season) -> None:
    one, other = season(seed=3), season(seed=3)
    one.play(MIXED, 8)
    other.play(MIXED, 8)
    assert to_json(one.table) == to_json(other.table)


def test_the_order_of_observations_does_not_matter(cfg) -> None:
    drops = {"a": 0.1, "b": 0.0, "c": 0.3}
    seen = {hotkey: Observation(LossScore(drop, 0.0, drop, 0.01), 0.9, True) for hotkey, drop in drops.items()}
    forward = observe(ScoreTable(), 0, seen, cfg)
    backward = observe(ScoreTable(), 0, dict(reversed(seen.items())), cfg)
    assert to_json(forward) == to_json(backward)
    assert list(forward.rows) == list(backward.rows)


def test_observe_leaves_its_argument_alone(cfg) -> None:
    before = observe(ScoreTable(), 0, {"a": Observation(GOOD, 1.0, True), "b": Observation(GOOD, 1.0, True)}, cfg)
    text = to_json(before)
    observe(before, 1, {"b": Observation(USELESS, 0.0, False)}, cfg)
    assert to_json(before) == text


def test_present_but_not_evaluated_keeps_rating_and_evidence(cfg) -> None:
    before = observe(ScoreTable(), 0, {"a": Observation(GOOD, 1.0, True), "b": Observation(USELESS, 1.0, True)}, cfg)
    after = observe(before, 1, {"a": Observation(None, 0.5, True), "b": Observation(GOOD, 1.0, True)}, cfg)
    assert after.rows["a"].rating == before.rows["a"].rating
    assert after.rows["a"].evidence == before.rows["a"].evidence
    assert after.rows["a"].participation.value < 1
    assert after.rows["a"].last_round == 1


def test_a_wrong_digest_and_a_missed_exchange_lower_their_averages_only(cfg) -> None:
    row = observe(ScoreTable(), 0, {"a": Observation(GOOD, 0.25, False)}, cfg).rows["a"]
    assert (row.evidence.value, row.participation.value, row.digest.value) == (1.0, 0.25, 0.0)


def test_absence_fades_evidence_and_the_row_is_forgotten_in_the_end(cfg) -> None:
    table = observe(ScoreTable(), 0, {"gone": Observation(GOOD, 1.0, True)}, cfg)
    faded = [table.rows["gone"].evidence.value]
    for number in range(1, 6):
        table = observe(table, number, {"here": Observation(GOOD, 1.0, True)}, cfg)
        faded.append(table.rows["gone"].evidence.value)
    assert faded == sorted(faded, reverse=True) and len(set(faded)) == 6
    assert table.rows["gone"].last_round == 0
    assert "gone" in observe(table, FORGET_ROUNDS, {}, cfg).rows
    assert "gone" not in observe(table, FORGET_ROUNDS + 1, {}, cfg).rows


def test_rounds_the_validator_missed_are_held_against_nobody(cfg) -> None:
    seen = {"a": Observation(GOOD, 1.0, True)}
    table = observe(observe(ScoreTable(), 0, seen, cfg), 40, seen, cfg)
    assert table.rows["a"].evidence.value == 1.0


@pytest.mark.parametrize("again", [5, 4])
def test_a_round_counts_once(cfg, again: int) -> None:
    table = observe(ScoreTable(), 5, {}, cfg)
    with pytest.raises(ValueError, match=f"round {again} is not after round 5"):
        observe(table, again, {}, cfg)


def test_the_table_is_bounded(cfg, monkeypatch) -> None:
    monkeypatch.setattr(table_module, "MAX_ROWS", 2)
    with pytest.raises(ValueError, match="at most 2"):
        observe(ScoreTable(), 0, {name: Observation(None, 1.0, True) for name in "abc"}, cfg)


@pytest.mark.parametrize("participation", [-0.1, 1.1, math.nan])
def test_participation_is_a_share(participation: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Observation(None, participation, True)


def test_a_restart_changes_nothing(season) -> None:
    straight, restarted = season(seed=5), season(seed=5)
    straight.play(MIXED, 6)
    restarted.play(MIXED, 3)
    restarted.table = from_json(to_json(restarted.table))
    restarted.play(MIXED, 3)
    assert restarted.table == straight.table
    assert to_json(restarted.table) == to_json(straight.table)


share = st.floats(0, 1)
averages = st.builds(lambda weight, part: Average(weight * part, weight), share, share)
rows = st.builds(
    Row,
    st.builds(Rating, st.floats(-1e6, 1e6), st.floats(1e-3, 1e3)),
    averages,
    averages,
    averages,
    st.integers(-1, 100),
)


@given(st.dictionaries(st.text(max_size=8), rows, max_size=4))
@settings(max_examples=60, deadline=None)
def test_json_round_trip_is_exact(rows: dict[str, Row]) -> None:
    table = ScoreTable(rows, 100)
    assert from_json(to_json(table)) == table


keys = st.sampled_from(["rows", "round", "version", "x"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
)


@given(documents)
@settings(max_examples=100, deadline=None)
def test_any_other_json_is_one_clear_error(document: object) -> None:
    with pytest.raises(ValueError):
        from_json(json.dumps(document))


def mended(**changes: object) -> dict:
    full = [0.2, 0.2]
    row = {"rating": [25.0, 8.0], "evidence": [0.1, 0.2], "participation": full, "digest": full, "last_round": 3}
    return {"version": 1, "round": 3, "rows": {"a": {**row, **changes}}}


def test_from_json_reads_the_shape_the_broken_ones_are_made_from() -> None:
    assert from_json(json.dumps(mended())).rows["a"].rating == Rating(25.0, 8.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, r"nested too deeply|Expecting value"),
        ('{"version": 1, "version": 1, "round": 3, "rows": {}}', "repeats a key"),
        (json.dumps({**mended(), "version": 2}), "version 2"),
        (json.dumps({**mended(), "round": 2}), "after the table's round 2"),
        (json.dumps({**mended(), "round": True}), "whole number"),
        (json.dumps({**mended(), "extra": 0}), "exactly"),
        (json.dumps({**mended(), "rows": {str(n): {} for n in range(table_module.MAX_ROWS + 1)}}), "at most"),
        (json.dumps(mended(extra=0)), "a must be a table of exactly"),
        (json.dumps(mended(rating=[25.0, math.nan])), "finite"),
        (json.dumps(mended(rating=[25.0, 0.0])), "sigma above 0"),
        (json.dumps(mended(rating=[25.0])), "two numbers"),
        (json.dumps(mended(rating=["25", 1])), "two numbers"),
        (json.dumps(mended(rating=[10**400, 1])), "finite"),
        (json.dumps(mended(evidence=[0.3, 0.2])), "total <= weight"),
        (json.dumps(mended(digest=[-0.1, 0.2])), "total <= weight"),
        (json.dumps(mended(participation=[1.5, 1.5])), "total <= weight"),
        (json.dumps(mended(last_round=1.0)), "whole number"),
        (" " * (table_module.MAX_JSON_BYTES + 1), "at most"),
    ],
)
def test_from_json_refuses_and_names_the_place(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_json(text)
