import math
from dataclasses import replace

import pytest
from bittensor.intents.weights import normalize
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.config import ScoringConfig
from subnet.scoring.ratings import Rating
from subnet.scoring.table import Average, Row, ScoreTable, observe
from subnet.scoring.weights import score, weights

from .conftest import COPIER, HALF, HONEST, NOISE, ZEROS, Miner

NOTHING = Rating(10.0, 2.0)


def row(
    mu: float = 30.0,
    sigma: float = 2.0,
    evidence: float = 1.0,
    participation: float = 1.0,
    digest: float = 1.0,
    trained: float = 6.0,
) -> Row:
    averages = (Average(value, 1.0) for value in (evidence, participation, digest))
    return Row(Rating(mu, sigma), *averages, trained, 0)


def test_score_formula(cfg) -> None:
    sure = 1 / (1 + math.exp(-6))
    full = score(row(evidence=0.75, participation=0.5, digest=0.5), NOTHING, cfg)
    assert full == pytest.approx(0.75 * 0.5 * 0.5 * sure)
    assert score(row(trained=0.0), NOTHING, cfg) == 0.5
    assert score(row(mu=NOTHING.mu), NOTHING, cfg) == 0.0
    assert score(row(mu=1.0), NOTHING, cfg) == 0.0
    spread = math.sqrt(2 * cfg.openskill_beta**2 + 2 * 2.0**2)
    three_quarters = NOTHING.mu + 0.6744897501960817 * spread
    assert score(row(mu=three_quarters), NOTHING, cfg) == pytest.approx(sure)
    assert score(row(mu=(three_quarters + NOTHING.mu) / 2), NOTHING, cfg) == pytest.approx(0.53 * sure, abs=0.01)
    assert score(row(evidence=cfg.min_evidence * 0.99), NOTHING, cfg) == 0.0
    assert score(row(evidence=cfg.min_evidence), NOTHING, cfg) > 0.0


def test_no_evidence_is_no_pay_even_without_a_threshold(cfg) -> None:
    assert score(row(evidence=0.0), NOTHING, replace(cfg, min_evidence=0.0)) == 0.0
    assert score(Row(), Rating(), replace(cfg, min_evidence=0.0)) == 0.0


parts = st.tuples(*[st.floats(0.2, 1)] * 3, st.floats(-2, 6), st.floats(20, 60))
tables = st.lists(parts, min_size=1, max_size=12)


def table_of(drawn: list[tuple[float, ...]]) -> ScoreTable:
    rows = {f"h{n}": row(mu, 2.0, e, p, d, odds) for n, (e, p, d, odds, mu) in enumerate(drawn)}
    return ScoreTable(rows, 0, NOTHING)


@given(tables, st.floats(0, 1), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_weights_sum_to_one_and_do_not_depend_on_order(drawn, burn: float, random) -> None:
    cfg = ScoringConfig(burn=burn)
    table = table_of(drawn)
    uids = {hotkey: uid for uid, hotkey in enumerate(table.rows)}
    paid = weights(table, uids, cfg, owner_uid=len(drawn))
    assert math.fsum(paid.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(share > 0 for share in paid.values())
    assert paid.get(len(drawn), 0.0) == pytest.approx(burn)
    shuffled = list(table.rows)
    random.shuffle(shuffled)
    again = replace(table, rows={hotkey: table.rows[hotkey] for hotkey in shuffled})
    assert weights(again, {hotkey: uids[hotkey] for hotkey in shuffled}, cfg, len(drawn)) == paid


@given(tables, st.integers(0, 4), st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_more_of_any_good_is_never_less_pay_and_never_more_for_others(drawn, which: int, more: float) -> None:
    cfg = ScoringConfig()
    before = table_of(drawn)
    uids = {hotkey: uid for uid, hotkey in enumerate(before.rows)}
    better = list(drawn[0])
    better[which] += more if which > 2 else more * (1 - better[which])
    after = table_of([tuple(better), *drawn[1:]])
    was, now = weights(before, uids, cfg, None), weights(after, uids, cfg, None)
    assert now.get(0, 0.0) >= was.get(0, 0.0) - 1e-12
    assert all(now.get(uid, 0.0) <= was.get(uid, 0.0) + 1e-12 for uid in range(1, len(drawn)))


@given(tables)
@settings(max_examples=30, deadline=None)
def test_the_more_it_scores_the_more_it_is_paid(drawn) -> None:
    cfg = ScoringConfig()
    table = table_of(drawn)
    paid = weights(table, {hotkey: uid for uid, hotkey in enumerate(table.rows)}, cfg, None)
    by_score = sorted(range(len(drawn)), key=lambda uid: score(table.rows[f"h{uid}"], NOTHING, cfg))
    shares = [paid.get(uid, 0.0) for uid in by_score]
    assert shares == sorted(shares)


@pytest.mark.parametrize("field", ["mu", "evidence", "participation", "digest", "trained"])
def test_weights_rise_with_every_good(cfg, field: str) -> None:
    def share(value: float) -> float:
        table = ScoreTable({"a": row(**{field: value}), "b": row()}, 0, NOTHING)
        return weights(table, {"a": 0, "b": 1}, cfg, None).get(0, 0.0)

    levels = {"mu": [5, 11, 12, 13, 30], "trained": [-3, -2, 0, 3, 6]}.get(field, [0.0, 0.5, 0.7, 0.9, 1.0])
    shares = [share(level) for level in levels]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 0.5
    assert len(set(shares[1:])) == 4


def test_burn_goes_to_the_owner_on_top_of_what_it_earns(cfg) -> None:
    table = ScoreTable({"a": row(), "owner": row()}, 0, NOTHING)
    uids = {"a": 3, "owner": 7}
    assert weights(table, uids, replace(cfg, burn=0.2), 7) == pytest.approx({3: 0.4, 7: 0.6})
    assert weights(table, uids, replace(cfg, burn=0.2), None) == pytest.approx({3: 0.5, 7: 0.5})
    assert weights(table, uids, replace(cfg, burn=1.0), 0) == {0: 1.0}


def test_nobody_earning_is_no_weights_or_all_to_the_owner_when_burning(cfg) -> None:
    table = ScoreTable({"a": row(evidence=0.0)}, 0, NOTHING)
    assert weights(table, {"a": 1}, cfg, 0) == {}
    assert weights(ScoreTable(), {"a": 1}, cfg, 0) == {}
    assert weights(table, {"a": 1}, replace(cfg, burn=0.1), 0) == {0: 1.0}


def test_only_registered_hotkeys_are_paid(cfg) -> None:
    table = ScoreTable({"here": row(), "deregistered": row()}, 0, NOTHING)
    assert weights(table, {"here": 4, "new": 5}, cfg, None) == {4: 1.0}


def test_two_hotkeys_on_one_uid_are_refused(cfg) -> None:
    with pytest.raises(ValueError, match="share a uid"):
        weights(ScoreTable(), {"a": 1, "b": 1}, cfg, None)


@given(tables, st.floats(0, 0.5))
@settings(max_examples=60, deadline=None)
def test_as_the_chain_keeps_them_u16_the_shares_are_the_same_to_its_precision(drawn, burn: float) -> None:
    table = table_of(drawn)
    uids = {hotkey: uid for uid, hotkey in enumerate(table.rows)}
    paid = weights(table, uids, ScoringConfig(burn=burn), len(drawn))
    on_chain = dict(zip(*normalize(list(paid), list(paid.values())), strict=True))  # what the SDK sends of them
    assert max(on_chain.values()) == 65535 and min(on_chain.values()) > 0
    total = sum(on_chain.values())
    for uid, share in paid.items():
        # Each is off by half a unit of the largest, the sum by as much for each of them.
        assert on_chain.get(uid, 0) / total == pytest.approx(share, abs=(1 + len(paid)) * max(paid.values()) / 65535)


@pytest.mark.parametrize("seed", range(8))
def test_honest_miners_all_earn_from_the_first_evaluation_and_about_equally_from_the_third(season, seed: int) -> None:
    played = season(seed)
    assert len(played.play(dict.fromkeys("abcd", HONEST), 1)) == 4
    paid = played.play(dict.fromkeys("abcd", HONEST), 2)
    assert max(paid.values()) < 2 * min(paid.values())
    settled = played.play(dict.fromkeys("abcd", HONEST), 20)
    assert max(settled.values()) < 1.15 * min(settled.values())


@pytest.mark.parametrize("crew", [2, 4, 16, 60])
def test_slower_machines_that_are_always_last_are_paid_about_in_proportion_to_their_work(season, crew: int) -> None:
    """Paid by ranks they fade to nothing: they lose every match."""
    played = season(crew)
    miners = {f"h{n}": HONEST for n in range(crew)} | {"half": HALF, "quarter": Miner(0.25)}
    paid = played.play(miners, 20)
    full = sum(paid[f"h{n}"] for n in range(crew)) / crew
    assert paid["half"] / full == pytest.approx(0.5, abs=0.07)
    assert paid["quarter"] / full == pytest.approx(0.25, abs=0.06)


@pytest.mark.parametrize("seed", range(8))
def test_free_riders_of_zeros_and_of_noise_earn_nothing_ever(season, seed: int) -> None:
    played = season(seed)
    for _ in range(20):
        paid = played.play({"a": HONEST, "b": HONEST, "zeros": ZEROS, "noise": NOISE}, 1)
        assert paid.keys() == {"a", "b"}


def test_noise_passes_the_test_of_one_round_now_and_then(season) -> None:
    """Why evidence is a size and not a verdict."""
    played = season()
    passed = [played.observe({"noise": NOISE})["noise"].loss.evident(2.0) for _ in range(200)]
    assert 5 < sum(passed) < 80


def test_zeros_alone_earn_nothing(season) -> None:
    assert season().play({"zeros": ZEROS, "more zeros": ZEROS}, 5) == {}


@pytest.mark.parametrize("crew", [4, 16, 60])
@pytest.mark.parametrize("newcomer", [HONEST, HALF])
def test_a_newcomer_has_half_of_an_equal_peers_pay_within_three_evaluations(season, crew: int, newcomer) -> None:
    played = season(crew)
    established = {f"h{n}": HONEST for n in range(crew)} | {"equal": newcomer}
    played.play(established, 20)
    paid = played.play({**established, "new": newcomer}, 3)
    assert paid["new"] > 0.5 * paid["equal"]
    paid = played.play({**established, "new": newcomer}, 7)
    assert paid["new"] > 0.85 * paid["equal"]


def test_offline_peers_fade_to_nothing_within_a_tempo(season) -> None:
    """A tempo is 360 blocks: six rounds of 60 blocks."""
    played = season()
    before = played.play({"a": HONEST, "b": HONEST, "gone": HONEST}, 5)["gone"]
    shares = [played.play({"a": HONEST, "b": HONEST}, 1).get("gone", 0.0) for _ in range(12)]
    assert before > shares[0] > shares[1] > shares[2]
    assert shares[5] < 0.03 * before
    assert shares[-1] == 0.0


def test_a_peer_back_from_an_outage_earns_again(season) -> None:
    played = season()
    everybody = {"a": HONEST, "b": HONEST, "back": HONEST}
    played.play(everybody, 5)
    assert "back" not in played.play({"a": HONEST, "b": HONEST}, 12)
    assert played.play(everybody, 3)["back"] > 0.05


@pytest.mark.parametrize("rounds", [3, 10, 30])
@pytest.mark.parametrize("parts", [2, 4])
def test_splitting_one_machine_over_hotkeys_gains_nothing(season, parts: int, rounds: int) -> None:
    """By time: each hotkey trains a k-th of the steps; whether it says so or claims all of them."""
    others = {f"honest{n}": HONEST for n in range(4)}

    def attacker(miners: dict[str, Miner]) -> float:
        seasons = [season(seed).play({**others, **miners}, rounds) for seed in range(4)]
        return sum(share for paid in seasons for hotkey, share in paid.items() if hotkey not in others) / 4

    whole = attacker({"whole": HONEST})
    assert attacker({f"part{n}": Miner(1 / parts) for n in range(parts)}) < 1.05 * whole
    claims = Miner(1 / parts, own=1 / parts, declares=1.0)
    assert attacker({f"part{n}": claims for n in range(parts)}) < 1.05 * whole


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_one_full_gradient_sent_by_many_hotkeys_is_paid_once(season, parts: int) -> None:
    """Trained on the samples of one of them, or on some of each."""
    names = [f"sybil{n}" for n in range(parts)]
    twins = {name: frozenset(names) - {name} for name in names}
    others = {f"honest{n}": HONEST for n in range(4)}
    for owns in ([1.0] + [0.0] * (parts - 1), [1 / parts] * parts):
        sybils = {name: Miner(own=own, twins=twins[name]) for name, own in zip(names, owns, strict=True)}
        for rounds in (1, 3, 10):
            paid = season(parts).play({**others, **sybils}, rounds)
            assert sum(paid.get(name, 0.0) for name in names) < 1.1 * max(paid[h] for h in others)


@pytest.mark.parametrize("seed", range(4))
def test_one_round_moves_pay_by_a_bounded_part(season, seed: int) -> None:
    """Whatever one round shows of a peer, however absurd, it changes nobody's settled pay by more than the decay lets
    in: 1 - evidence_decay of it, and a tenth for what else that round is measured with."""
    played = season(seed)
    crew = {f"h{n}": HONEST for n in range(5)}
    before = played.play(crew, 20)
    bound = (1 - played.cfg.evidence_decay) + 0.1
    table = played.table
    for absurd in (Miner(work=50.0), Miner(work=0.0, own=0.0), NOISE, Miner(declares=900.0), Miner(participation=0.0)):
        played.table = observe(table, table.round + 1, played.observe({**crew, "h0": absurd}), played.cfg)
        after = played.pay()
        for hotkey in crew:
            assert abs(after[hotkey] - before[hotkey]) < bound * max(after[hotkey], before[hotkey])


def test_a_copier_is_out_within_ten_rounds_for_good(season) -> None:
    played = season(2)
    crew = {f"h{n}": HONEST for n in range(6)}
    played.play({**crew, "copier": COPIER}, 10)
    for _ in range(20):
        assert "copier" not in played.play({**crew, "copier": COPIER}, 1)
