"""A few cells of the grid of docs/attacks.md, small: who cheats is not paid, and who is honest is, slow or late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subnet.attack.players import PLAYERS, work_of
from subnet.attack.season import LATE, NOTHING, Season, Setting, paid, play

Cells = Callable[[Setting], Season]
SMALL = {"peers": 6, "rounds": 4}


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["free rider: zeros", "NaN and Inf", "stale round", "lying reducer"])
def test_who_cheats_is_not_paid(season: Cells, attack: str) -> None:
    played = season(Setting(attack, 1, "mean", **SMALL))
    assert played.taken(-1) <= NOTHING if attack != "lying reducer" else played.taken(-1) < played.taken(0) + 1
    assert not any(played.flagged)


def test_a_slower_honest_machine_is_paid_for_what_it_does(season: Cells) -> None:
    played = season(Setting("free rider: zeros", 1, "mean", **SMALL))
    pay = played.pay[-1]
    slow = next(h for h, speed in played.honest.items() if speed == 0.5)
    assert 0.2 < pay[slow] / played.machine(-1) < 0.9
    assert played.losses[-1] < played.losses[0] < 6.0


def test_a_cell_is_the_same_whenever_it_is_played() -> None:
    setting = Setting("sign flip", 1, "centered_clip", peers=4, rounds=2)
    first, second = play(setting), play(setting)
    assert (first.pay, first.losses, first.flagged) == (second.pay, second.losses, second.flagged)


@pytest.mark.slow
def test_a_colluding_validator_of_three_moves_nothing(season: Cells) -> None:
    played = season(Setting("colluding validator", 1, "mean", **SMALL))
    assert played.taken(-1) <= NOTHING
    rows = [{0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}, {2: 1.0}]
    assert paid(rows, ["a", "b", "cheat"])[0]["cheat"] == 0.0


@pytest.mark.slow
def test_a_late_machine_is_met_with_half_an_equals_pay_at_last(season: Cells) -> None:
    played = season(Setting("", 0, "mean", peers=4, rounds=LATE + 4, late=1))
    assert played.ramp() is not None


def test_a_lie_beside_a_second_reducer_is_found_at_once_and_changes_nothing(season: Cells) -> None:
    lied = season(Setting("lying reducer", 1, "mean", peers=4, rounds=1, redundancy=2))
    harmless = season(Setting("another state for joiners", 1, "mean", peers=4, rounds=1))  # trains just the same
    assert lied.taken(0) == 0.0 and lied.losses == harmless.losses


def test_what_attackers_may_earn_is_what_they_work() -> None:
    assert {attack: work_of(attack, 4) for attack in PLAYERS if work_of(attack, 4)} == {
        "sandbagger: 10 % of the steps": 0.4,
        "sandbagger: 50 % of the steps": 2.0,
        "copier: exact": 1.0,
        "copier: scaled": 1.0,
        "copier: noised": 1.0,
        "copier: sign flipped": 1.0,
        "copier: mixed of two": 1.0,
        "sybils: one machine's work split": 1.0,
        "over-fitter": 4.0,
        "scaling x 1000": 4.0,
    }
