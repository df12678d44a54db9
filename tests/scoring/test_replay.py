"""Who is audited, what may differ, and that leaving out steps does not pay."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from subnet.config import ConfigError, ScoringConfig
from subnet.scoring.document import from_json, to_json
from subnet.scoring.loss import LossScore
from subnet.scoring.replay import (
    DISTANCE,
    LOSS_GAP,
    PROBES,
    caught,
    compared,
    dearest,
    drawn,
    probes_of,
    profit,
    step_of,
)
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.scoring.weights import weights

CFG = ScoringConfig()
BEACONS = [n.to_bytes(32, "big") for n in range(20_000)]
LEVELS = [n / 10 for n in range(10)]


def test_draws_have_the_probabilities_they_say_and_are_everybodys_own():
    hit = sum(drawn(beacon, "5a", 0.02) for beacon in BEACONS) / len(BEACONS)
    assert hit == pytest.approx(0.02, abs=0.003)
    both = sum(drawn(b, "5a", 0.5) and drawn(b, "5b", 0.5) for b in BEACONS) / len(BEACONS)
    assert both == pytest.approx(0.25, abs=0.01)
    assert not any(drawn(beacon, "5a", 0.0) for beacon in BEACONS[:100])
    assert all(drawn(beacon, "5a", 1.0) for beacon in BEACONS[:100])


def test_every_step_is_as_likely_also_among_those_audited():
    counts = [0] * 7
    for beacon in BEACONS:
        if drawn(beacon, "5a", 0.5):
            counts[step_of(beacon, "5a", 7)] += 1
    expected = sum(counts) / 7
    assert all(count == pytest.approx(expected, rel=0.1) for count in counts)


def test_probes_are_leaves_of_the_parameters():
    assert probes_of(BEACONS[0], "5a", 1) == [0]
    found = probes_of(BEACONS[0], "5a", 1000)
    assert found == sorted(set(found)) and len(found) in (PROBES - 1, PROBES) and found[0] >= 0 and found[-1] < 1000
    assert found != probes_of(BEACONS[1], "5a", 1000)


def test_what_other_hardware_may_differ_by_passes_and_more_does_not():
    losses = (5.0, math.nan, 4.5)
    assert compared(losses, losses, 0.0, exact=True).passed
    near = (5.0 + 0.9 * LOSS_GAP, math.nan, 4.5)
    assert compared(losses, near, 0.9 * DISTANCE).passed
    assert compared(losses, (5.0 + 1.1 * LOSS_GAP, math.nan, 4.5), 0.0).why == "losses are not those of its steps"
    assert compared(losses, losses, 1.1 * DISTANCE).why == "steps do not lead where it says"
    assert compared(losses, (5.0, 4.8, 4.5), 0.0).passed is False
    assert compared(losses, (5.0, math.nan, math.nan), 0.0).passed is False
    assert compared(losses, losses, math.nan).passed is False
    assert str(compared(losses, losses, 0.0, exact=True)) == "passed, bit for bit"


@pytest.mark.parametrize("done", LEVELS)
def test_leaving_out_steps_is_worse_than_doing_them_even_if_the_loss_score_sees_nothing(done: float):
    rate, penalty = CFG.replay_rate, float(CFG.replay_penalty)
    assert caught(done, rate) == pytest.approx(rate * (1 - done))
    limit = dearest(rate, penalty)
    assert limit == pytest.approx(2 / 3)
    for cost in (0.0, 0.3, 0.5, 0.999 * limit):
        assert profit(done, 1.0, cost, rate, penalty) < 1 - cost
    assert profit(done, 1.0, 1.001 * limit, rate, penalty) > 1 - 1.001 * limit
    assert profit(done, 1.0, 0.5, 0.0, penalty) > 1 - 0.5  # without audits it would pay
    for cost in (0.5, 0.9, 1.0):  # and what the loss score does see is paid in proportion to the work
        assert profit(done, done, cost, rate, penalty) <= done * (1 - cost) + 1e-12


def test_the_profit_is_what_long_play_gives():
    """A sandbagger played round by round with the real draws, against the formula."""
    rate, penalty, done, steps = 0.2, 10, 0.4, 10
    earned, barred = 0.0, 0
    for beacon in BEACONS:
        if barred:
            barred -= 1
            continue
        earned += 1.0 - 0.5 * done
        if drawn(beacon, "5a", rate) and step_of(beacon, "5a", steps) >= done * steps:
            barred = penalty
    assert earned / len(BEACONS) == pytest.approx(profit(done, 1.0, 0.5, rate, penalty), rel=0.05)


def test_a_run_whose_penalty_is_too_short_for_its_rate_is_refused():
    with pytest.raises(ConfigError, match="at least 1 / replay_rate"):
        replace(CFG, replay_rate=0.02, replay_penalty=49)
    assert replace(CFG, replay_rate=0.02, replay_penalty=50)
    assert replace(CFG, replay_rate=0.0, replay_penalty=0)


def season(cfg: ScoringConfig, rounds: int, table: ScoreTable | None = None, **failed: int) -> ScoreTable:
    """Equal miners a, b, c over rounds; `failed`: in which round whose audit fails."""
    table = table or ScoreTable()
    for _ in range(rounds):
        index = table.round + 1
        seen = {
            h: Observation(LossScore(0.06, 0.005, 0.05, 0.005, 0.02, 0.005), 1.0, True, tokens=1000,
                           replayed=False if failed.get(h) == index else None)
            for h in "abc"
        }  # fmt: skip
        table = observe(table, index, seen, cfg)
    return table


UIDS = {"a": 0, "b": 1, "c": 2}


def test_a_failed_audit_costs_the_penalty_also_across_a_restart_and_then_is_over():
    cfg = replace(CFG, replay_rate=0.5, replay_penalty=6)
    before = season(cfg, 8)
    assert weights(before, UIDS, cfg, None)[0] == pytest.approx(1 / 3)
    table = season(cfg, 1, before, a=8)
    for index in range(8, 8 + 6 + 1):
        assert table.round == index and set(weights(table, UIDS, cfg, None)) == {1, 2}
        table = season(cfg, 1, from_json(to_json(table)))
    assert table.round == 15 and weights(table, UIDS, cfg, None)[0] > 0.25


def test_a_second_failure_counts_from_then_and_others_are_untouched():
    cfg = replace(CFG, replay_rate=0.5, replay_penalty=6)
    table = season(cfg, 1, season(cfg, 5, a=3), a=5)
    assert table.rows["a"].barred_until == 5 + 6
    assert table.rows["b"].barred_until == -1


def test_what_failed_sets_no_norm_for_the_others():
    table = ScoreTable()
    good = LossScore(0.06, 0.005, 0.05, 0.005, 0.02, 0.005)
    huge = replace(good, held_out=0.5)
    seen = {"a": Observation(huge, 1.0, True, replayed=False), "b": Observation(good, 1.0, True)}
    table = observe(table, 0, seen, CFG)
    assert table.rows["a"].evidence.value == 0.0 and table.rows["b"].evidence.value == pytest.approx(1.0)
