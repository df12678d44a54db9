import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.exchange.majority import Claim, claim_body, differing_runs, majority, open_claim
from subnet.swarm.records import BadRecord, Record

A, B = b"a" * 32, b"b" * 32


def claims(*pairs):
    return [Claim(f"h{i}", step, root) for i, (step, root) in enumerate(pairs)]


def test_most_votes_win_whatever_the_stake():
    found = majority(claims((5, A), (5, A), (5, B)), {"h2": 1e9})
    assert (found.step, found.root, found.holders, found.claims) == (5, A, ("h0", "h1"), 3)


def test_a_tie_goes_to_stake_then_to_the_later_step():
    assert majority(claims((5, A), (5, B)), {"h0": 1.0}).root == A
    assert majority(claims((5, A), (5, B)), {"h1": 1.0}).root == B
    assert majority(claims((4, B), (5, A)), {}).step == 5


def test_nobody_spoke():
    assert majority([], {}) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([A, B])), min_size=1, max_size=9), st.randoms())
def test_the_order_in_which_claims_arrive_does_not_matter(pairs, random):
    ordered = claims(*pairs)
    shuffled = list(ordered)
    random.shuffle(shuffled)
    assert majority(ordered, {}) == majority(shuffled, {})


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.integers(1, 16))
def test_runs_cover_exactly_the_leaves_that_differ(same, longest):
    mine = [b"x"] * len(same)
    theirs = [b"x" if s else b"y" for s in same]
    runs = differing_runs(mine, theirs, longest)
    covered = [i for start, stop in runs for i in range(start, stop)]
    assert covered == [i for i, s in enumerate(same) if not s]
    assert all(0 < stop - start <= longest for start, stop in runs)


def test_states_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="cannot be compared"):
        differing_runs([b"x"], [b"x", b"y"], 4)


def test_claims_are_checked():
    def record(**change):
        return Record("digest", b"r" * 32, 7, "h0", claim_body(5, A) | change, b"")

    assert open_claim(record()) == Claim("h0", 5, A)
    assert open_claim(record(step=8)).step == 8
    for change in ({"step": 9}, {"step": -1}, {"step": True}, {"step": 2**39}, {"root": b"short"}, {"more": 1}):
        with pytest.raises(BadRecord):
            open_claim(record(**change))
