"""Whose state is the majority's: examples, and rules that hold for any claims."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.exchange.majority import (
    IGNORED_ROUNDS,
    MAX_SUSPENDED,
    Claim,
    Standing,
    Undelivered,
    claim_body,
    majority,
    open_claim,
    standings,
)
from subnet.swarm.records import BadRecord, Record

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32
EARNER = Standing(established=True)

steps = st.integers(0, 3)
roots = st.sampled_from([A, B, C])
standing_of = st.builds(Standing, st.booleans(), st.floats(0, 1e6))
hotkeys = st.sampled_from([f"h{i}" for i in range(9)])
votes = st.dictionaries(hotkeys, st.tuples(steps, roots, standing_of), min_size=1)


def claims(*pairs):
    return [Claim(f"h{i}", step, root) for i, (step, root) in enumerate(pairs)]


def spoken(votes):
    standing = {hotkey: s for hotkey, (_, _, s) in votes.items()}
    return [Claim(hotkey, step, root) for hotkey, (step, root, _) in votes.items()], standing


@dataclass
class Row:
    hotkey: str
    stake: float = 0.0
    incentive: float = 0.0


# Who is established ---------------------------------------------------------------------------------------------------


def test_before_anybody_earns_nobody_is_established():
    rows = [Row("validator", stake=1e6), Row("miner")]
    assert not any(s.established for s in standings(rows).values())
    assert standings(rows)["validator"].stake == 1e6


def test_earners_and_holders_of_a_hundredth_of_the_stake_are_established():
    rows = [Row("v", stake=990.0), Row("small", stake=10.0), Row("dust", stake=9.0), Row("m", incentive=1e-4), Row("x")]
    assert {h for h, s in standings(rows).items() if s.established} == {"v", "m"}
    rows[2].stake = 0.0
    assert {h for h, s in standings(rows).items() if s.established} == {"v", "small", "m"}
    assert not standings([Row("x"), Row("m", incentive=1.0)])["x"].established
    assert standings([]) == {}


@given(st.lists(st.tuples(st.floats(0, 1e9), st.sampled_from([0.0, 0.1])), max_size=300))
def test_stake_alone_establishes_at_most_a_hundred(pairs):
    rows = [Row(str(i), stake, incentive) for i, (stake, incentive) in enumerate(pairs)]
    standing = standings(rows)
    assert sum(standing[r.hotkey].established for r in rows if r.incentive == 0) <= 101


# The majority ---------------------------------------------------------------------------------------------------------


def test_most_votes_win_whatever_the_stake():
    found = majority(claims((5, A), (5, A), (5, B)), {"h2": Standing(stake=1e9)})
    assert (found.step, found.root, found.holders, found.claims) == (5, A, ("h0", "h1"), 3)


def test_fresh_registrations_do_not_outvote_the_earners():
    earners = claims(*[(5, A)] * 3)
    sybils = [Claim(f"s{i}", 9, B) for i in range(200)]
    assert majority([*earners, *sybils], {c.hotkey: EARNER for c in earners}).root == A
    assert majority([*earners, *sybils], {}).root == B


def test_a_tie_goes_to_the_later_step_then_to_stake_then_to_the_root():
    assert majority(claims((4, B), (5, A)), {"h0": Standing(stake=9.0)}).step == 5
    assert majority(claims((5, A), (5, B)), {"h0": Standing(stake=1.0)}).root == A
    assert majority(claims((5, A), (5, B)), {"h1": Standing(stake=1.0)}).root == B
    assert majority(claims((5, A), (5, B)), {}).root == B


def test_votes_of_newcomers_decide_among_equally_many_earners():
    spoken = claims((5, A), (5, B), (5, A))
    assert majority(spoken, {"h0": EARNER, "h1": EARNER}).root == A


def test_nobody_spoke():
    assert majority([], {}) is None


@pytest.mark.parametrize("step", [3, 7])
def test_one_other_does_not_take_this_peers_state_away_unless_it_is_later(step):
    mine = Claim("me", 7, A)
    other = Claim("h0", step, B)
    assert majority([other], {"h0": Standing(stake=1e9)}, own=mine).holders == ("me",)
    assert majority([Claim("h0", 8, B)], {}, own=mine).root == B
    assert majority([Claim("h0", 8, B)], {"me": EARNER}, own=mine).root == A
    assert majority([other, Claim("h1", step, B)], {}, own=mine).root == B
    assert majority([other], {"h0": EARNER}, own=mine).root == B


def test_this_peers_state_replaces_what_it_claimed_before():
    found = majority([Claim("me", 3, B), Claim("h0", 3, B)], {}, own=Claim("me", 4, A))
    assert (found.root, found.holders, found.claims) == (A, ("me",), 2)


@given(votes, st.randoms())
def test_the_order_in_which_claims_arrive_does_not_matter(votes, random):
    ordered, standing = spoken(votes)
    shuffled = list(ordered)
    random.shuffle(shuffled)
    assert majority(ordered, standing) == majority(shuffled, standing)


@given(votes)
def test_everybody_who_heard_the_same_follows_the_same_state(votes):
    heard, standing = spoken(votes)
    found = majority(heard, standing)
    assert found.holders == tuple(sorted(c.hotkey for c in heard if c.digest == found.digest))
    assert found.claims == len(heard)


@given(votes)
def test_no_state_has_more_of_the_established_behind_it(votes):
    heard, standing = spoken(votes)
    found = majority(heard, standing)
    count = {c.digest: 0 for c in heard}
    for claim in heard:
        count[claim.digest] += standing[claim.hotkey].established
    assert count[found.digest] == max(count.values())


@given(votes, steps, roots)
def test_one_more_voice_for_the_majority_does_not_change_it(votes, step, root):
    heard, standing = spoken(votes)
    found = majority(heard, standing)
    more = majority([*heard, Claim("one more", found.step, found.root)], standing)
    assert more.digest == found.digest


@given(votes, steps, roots)
def test_an_own_state_that_is_not_the_majoritys_has_fewer_votes_or_an_earlier_step(votes, step, root):
    heard, standing = spoken(votes)
    mine = Claim("me", step, root)
    found = majority(heard, standing, own=mine)
    if found.digest == mine.digest:
        return

    def weight(digest):
        voters = [c.hotkey for c in [*heard, mine] if c.digest == digest]
        return sum(standing.get(h, Standing()).established for h in voters), len(voters)

    assert (*weight(found.digest), found.step) > (*weight(mine.digest), step)


# Who is not believed --------------------------------------------------------------------------------------------------


def test_a_state_that_was_not_delivered_is_ignored_for_some_rounds():
    undelivered = Undelivered()
    liars = claims((9, B), (9, B))
    undelivered.failed(majority(liars, {}), 10)
    for now in range(10, 11 + IGNORED_ROUNDS):
        assert undelivered.believable([*liars, Claim("honest", 5, A)], now) == [Claim("honest", 5, A)]
    assert undelivered.believable(liars, 11 + IGNORED_ROUNDS) == liars


def test_unless_somebody_new_holds_it():
    undelivered = Undelivered()
    undelivered.failed(majority(claims((9, B), (9, B)), {}), 10)
    assert undelivered.believable(claims((9, B)), 11) == []
    heard = [*claims((9, B), (9, B)), Claim("new", 9, B)]
    assert undelivered.believable(heard, 11) == heard
    assert undelivered.believable(heard, 10) == [Claim("new", 9, B)]  # the others have just failed


def test_who_fails_once_is_believed_the_next_round_with_another_state():
    undelivered = Undelivered()
    undelivered.failed(majority(claims((9, B)), {}), 10)
    assert undelivered.believable(claims((10, A)), 11) == claims((10, A))


def test_who_fails_again_with_ever_new_states_is_believed_ever_less_often():
    undelivered = Undelivered()
    tried = []
    for now in range(100, 160):
        lie = Claim("liar", now, bytes([now]) * 32)
        if undelivered.believable([lie], now):
            tried.append(now)
            undelivered.failed(majority([lie], {}), now)
    gaps = [later - now for now, later in pairwise(tried)]
    assert gaps[:4] == [1, 3, 5, 9] and set(gaps[3:]) == {MAX_SUSPENDED + 1}


def test_who_delivers_is_forgiven():
    undelivered = Undelivered()
    target = majority(claims((9, B)), {})
    for now in (10, 20, 30):
        undelivered.failed(target, now)
    undelivered.delivered(target)
    assert undelivered.believable(claims((10, A)), 31) == claims((10, A))


def test_what_is_remembered_is_bounded():
    undelivered = Undelivered()
    for i in range(3000):
        undelivered.failed(majority([Claim(f"h{i}", i, A)], {}), 10)
    assert len(undelivered._states) <= 64 and len(undelivered._hotkeys) <= 1024
    assert undelivered.believable([Claim("h2999", 2999, A)], 11) == []


def test_the_updates_are_those_that_most_holders_name_and_their_keepers_are_known():
    heard = [
        Claim("h0", 9, A, (B, C, A)),
        Claim("h1", 9, A, (B, C)),
        Claim("h2", 9, A, (B, A)),
        Claim("h3", 9, A),
        Claim("h4", 8, B, (A,)),
    ]
    assert majority(heard, {}).updates == ((B, ("h0", "h1", "h2")), (C, ("h0", "h1")), (A, ("h0",)))
    assert majority(heard[3:4], {}).updates == ()


# Records ---------------------------------------------------------------------------------------------------


def test_claims_are_checked():
    def record(**change):
        return Record("digest", b"r" * 32, 7, "h0", claim_body(5, A) | change, b"")

    assert open_claim(record()) == Claim("h0", 5, A)
    assert open_claim(record(step=8)).step == 8
    assert open_claim(record(updates=[B, C])) == Claim("h0", 5, A, (B, C))
    for change in ({"step": 9}, {"step": -1}, {"step": True}, {"step": 2**39}, {"root": b"short"}, {"more": 1},
                   {"updates": [A] * 6}, {"updates": [b"short"]}, {"updates": A}):  # fmt: skip
        with pytest.raises(BadRecord):
            open_claim(record(**change))
