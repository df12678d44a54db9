import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.config import ScoringConfig
from subnet.scoring.ratings import Rating
from subnet.scoring.table import Average, Row, ScoreTable
from subnet.scoring.weights import score, weights


def row(
    mu: float = 30.0, sigma: float = 2.0, evidence: float = 1.0, participation: float = 1.0, digest: float = 1.0
) -> Row:
    return Row(Rating(mu, sigma), Average(evidence, 1.0), Average(participation, 1.0), Average(digest, 1.0), 0)


def test_score_formula(cfg) -> None:
    assert score(row(mu=30.0, sigma=2.0, evidence=0.75, participation=0.5, digest=0.5), cfg) == 0.75 * 28 * 0.5 * 0.5
    assert score(row(mu=1.0, sigma=2.0), cfg) == 0.0
    assert score(row(evidence=cfg.min_evidence * 0.99), cfg) == 0.0
    assert score(row(evidence=cfg.min_evidence), cfg) > 0.0


def test_no_evidence_is_no_pay_even_without_a_threshold(cfg) -> None:
    assert score(row(evidence=0.0), replace(cfg, min_evidence=0.0)) == 0.0
    assert score(Row(), replace(cfg, min_evidence=0.0)) == 0.0


scores = st.lists(st.floats(2.1, 60), min_size=1, max_size=12)


@given(scores, st.floats(0, 1), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_weights_sum_to_one_and_do_not_depend_on_order(mus: list[float], burn: float, random) -> None:
    cfg = ScoringConfig(burn=burn)
    rows = {f"h{place}": row(mu=mu) for place, mu in enumerate(mus)}
    uids = {hotkey: uid for uid, hotkey in enumerate(rows)}
    paid = weights(ScoreTable(rows, 0), uids, cfg, owner_uid=len(mus))
    assert math.fsum(paid.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(share > 0 for share in paid.values())
    shuffled = list(rows)
    random.shuffle(shuffled)
    again = ScoreTable({hotkey: rows[hotkey] for hotkey in shuffled}, 0)
    assert weights(again, {hotkey: uids[hotkey] for hotkey in shuffled}, cfg, len(mus)) == paid


@pytest.mark.parametrize("field", ["mu", "evidence", "participation", "digest"])
def test_weights_rise_with_every_good_and_fall_with_uncertainty(cfg, field: str) -> None:
    def share(**changes: float) -> float:
        return weights(ScoreTable({"a": row(**changes), "b": row()}, 0), {"a": 0, "b": 1}, cfg, None).get(0, 0.0)

    levels = [0.0, 0.5, 0.7, 0.9, 1.0]
    shares = [share(**{field: 30 * level if field == "mu" else level}) for level in levels]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 0.5
    assert len(set(shares[1:])) == 4
    assert share(sigma=5.0) < share(sigma=1.0)


def test_burn_goes_to_the_owner_on_top_of_what_it_earns(cfg) -> None:
    table = ScoreTable({"a": row(), "owner": row()}, 0)
    uids = {"a": 3, "owner": 7}
    assert weights(table, uids, replace(cfg, burn=0.2), 7) == pytest.approx({3: 0.4, 7: 0.6})
    assert weights(table, uids, replace(cfg, burn=0.2), None) == pytest.approx({3: 0.5, 7: 0.5})
    assert weights(table, uids, replace(cfg, burn=1.0), 0) == {0: 1.0}


def test_nobody_earning_is_no_weights_or_all_to_the_owner_when_burning(cfg) -> None:
    table = ScoreTable({"a": row(evidence=0.0)}, 0)
    assert weights(table, {"a": 1}, cfg, 0) == {}
    assert weights(ScoreTable(), {"a": 1}, cfg, 0) == {}
    assert weights(table, {"a": 1}, replace(cfg, burn=0.1), 0) == {0: 1.0}


def test_only_registered_hotkeys_are_paid(cfg) -> None:
    table = ScoreTable({"here": row(), "deregistered": row()}, 0)
    assert weights(table, {"here": 4, "new": 5}, cfg, None) == {4: 1.0}


def test_two_hotkeys_on_one_uid_are_refused(cfg) -> None:
    with pytest.raises(ValueError, match="share a uid"):
        weights(ScoreTable(), {"a": 1, "b": 1}, cfg, None)


@pytest.mark.parametrize("seed", range(8))
def test_honest_miners_all_earn_within_three_evaluations(season, seed: int) -> None:
    played = season(seed)
    played.play(dict.fromkeys("abcd", 0.05), 2)
    paid = played.play(dict.fromkeys("abcd", 0.05), 1)
    assert len(paid) == 4
    assert max(paid.values()) < 5 * min(paid.values())  # rank noise: one may win and another lose all three matches


def test_honest_miners_earn_equally_in_the_mean_and_even_out(season) -> None:
    early = [season(seed).play(dict.fromkeys("abcd", 0.05), 3) for seed in range(24)]
    for hotkey in "abcd":
        assert sum(paid[hotkey] for paid in early) / len(early) == pytest.approx(0.25, abs=0.05)
    settled = season().play(dict.fromkeys("abcd", 0.05), 100)
    assert max(settled.values()) < 2 * min(settled.values())


@pytest.mark.parametrize("seed", range(8))
def test_free_riders_of_zeros_and_of_noise_earn_nothing_ever(season, seed: int) -> None:
    played = season(seed)
    unpaid = 0
    for _ in range(20):
        paid = played.play({"a": 0.05, "b": 0.05, "zeros": 0.0, "noise": "noise"}, 1)
        assert paid.keys() <= {"a", "b"}
        unpaid += 2 - len(paid)
    assert unpaid <= 1  # an honest contribution fails its test in one of twenty; only a first one decides alone


def test_noise_passes_the_test_of_one_round_now_and_then(season) -> None:
    """Why evidence is a size and not a verdict."""
    played = season()
    assert 5 < sum(played.measure("noise").evident(2.0) for _ in range(200)) < 50


def test_zeros_alone_earn_nothing(season) -> None:
    assert season().play({"zeros": 0.0, "more zeros": 0.0}, 5) == {}


@pytest.mark.parametrize("seed", range(8))
def test_a_newcomer_earns_within_three_evaluations(season, seed: int) -> None:
    played = season(seed)
    played.play(dict.fromkeys("abc", 0.05), 5)
    assert played.play(dict.fromkeys(["a", "b", "c", "new"], 0.05), 3)["new"] > 0.25 / 4
    assert played.play(dict.fromkeys(["a", "b", "c", "new"], 0.05), 2)["new"] > 0.25 / 4


def test_offline_peers_fade_to_nothing(season) -> None:
    played = season()
    before = played.play({"a": 0.05, "b": 0.05, "gone": 0.05}, 5)["gone"]
    shares = [played.play({"a": 0.05, "b": 0.05}, 1).get("gone", 0.0) for _ in range(12)]
    assert before > shares[0] > shares[1] > shares[2]
    assert shares[-1] == 0.0


def test_a_peer_back_from_an_outage_earns_again(season) -> None:
    played = season()
    everybody = {"a": 0.05, "b": 0.05, "back": 0.05}
    played.play(everybody, 5)
    assert "back" not in played.play({"a": 0.05, "b": 0.05}, 12)
    assert played.play(everybody, 3)["back"] > 0.05


@pytest.mark.parametrize("rounds", [3, 10, 30])
@pytest.mark.parametrize("parts", [2, 4])
def test_splitting_one_contribution_over_hotkeys_gains_nothing(season, parts: int, rounds: int) -> None:
    """A k-th of the work drops the loss by a k-th. (k full-strength copies are another attack, not seen by ranks.)"""
    others = {f"honest{n}": 0.05 for n in range(4)}
    split = {f"part{n}": 0.05 / parts for n in range(parts)}

    def attacker(miners: dict[str, float]) -> float:
        seasons = [season(seed).play({**others, **miners}, rounds) for seed in range(4)]
        return sum(share for paid in seasons for hotkey, share in paid.items() if hotkey not in others)

    assert attacker(split) < attacker({"whole": 0.05}) * (1.05 if rounds == 3 else 0.6)
