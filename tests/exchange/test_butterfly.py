import pytest
import torch

from subnet.diloco.aggregate import CenteredClip, Mean, Trimmed
from subnet.diloco.codec import CodecError, Int4, Int8, Sparse, decode_part, encode_tree
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import hash_leaves, root
from subnet.diloco.outer import outer_step
from subnet.diloco.scheme import Scheme
from subnet.exchange import butterfly
from subnet.exchange.butterfly import (
    PartResult,
    carry_factor,
    check_contribution_part,
    decoded,
    encoded,
    open_part,
    part_body,
    reduce,
)
from subnet.exchange.commitment import Commitment
from subnet.exchange.roster import Roster
from subnet.exchange.round import Update
from subnet.swarm.records import BadRecord, Record

LAYOUT = Layout.of([("a", (8, 40)), ("b", (16,)), ("c", (64, 8))], 64)
CODEC = Int8(32)
SCHEME = Scheme(LAYOUT, CODEC, CODEC, Mean())


def contributions(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    vectors = [torch.randn(LAYOUT.numel, generator=generator) for _ in range(n)]
    trees = [encode_tree(CODEC, LAYOUT, v) for v in vectors]
    commitments = []
    for i, leaves in enumerate(trees):
        decoded = decode_part(CODEC, LAYOUT, leaves, 0, LAYOUT.num_leaves)
        commitments.append(Commitment(f"h{i}", root(hash_leaves(leaves)), float(decoded.norm()), 100 + i, 1, b"s" * 32))
    return trees, Roster(1, "h0", b"r" * 32, b"s" * 32, tuple(commitments), n)


def record(roster, part, body, hotkey=None):
    return Record("part", b"r" * 32, 1, hotkey or roster.commitments[part].hotkey, body, b"", str(part))


@pytest.mark.parametrize("peers", [2, 4, 8])
def test_parts_put_together_are_the_mean_of_everybody(peers):
    trees, roster = contributions(peers)
    whole = torch.zeros(LAYOUT.numel)
    for part, (start, stop) in enumerate(LAYOUT.parts(peers)):
        for c, t in zip(roster.commitments, trees, strict=True):
            check_contribution_part(SCHEME, c, t[start:stop], start, stop)
        members = [encoded(SCHEME, t[start:stop], start) for t in trees]
        made = reduce(SCHEME, roster, part, members)
        again = reduce(SCHEME, roster, part, members)
        assert made.leaves == again.leaves and made.root == again.root
        first, last = LAYOUT.span(start, stop)
        whole[first:last] = decode_part(CODEC, LAYOUT, made.leaves, start, stop) + made.residual
    tokens = torch.tensor([float(c.tokens) for c in roster.commitments])
    exact = [decode_part(CODEC, LAYOUT, t, 0, LAYOUT.num_leaves) for t in trees]
    median = sorted(c.norm for c in roster.commitments)
    middle = (median[(peers - 1) // 2] + median[peers // 2]) / 2
    clipped = [x * min(1.0, middle / c.norm) for x, c in zip(exact, roster.commitments, strict=True)]
    expected = sum(x * t for x, t in zip(clipped, tokens / tokens.sum(), strict=True))
    torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [Mean(), Mean("senders"), Trimmed(0.25), CenteredClip(1.0, 2)])
@pytest.mark.parametrize("codec", [CODEC, Int4(32), Sparse(4, 64)])
def test_a_part_comes_out_the_same_however_little_of_it_is_decoded_at_a_time(monkeypatch, rule, codec):
    trees, roster = contributions(4)
    scheme = Scheme(LAYOUT, CODEC, codec, rule)
    start, stop = LAYOUT.parts(4)[1]
    whole = reduce(scheme, roster, 1, [encoded(scheme, t[start:stop], start) for t in trees])
    values = [decode_part(CODEC, LAYOUT, t[start:stop], start, stop) for t in trees]
    monkeypatch.setattr(butterfly, "WINDOW_ELEMENTS", 1)
    asked = []

    def watched(values):
        read = decoded(LAYOUT, values, start)
        return lambda a, b: (asked.append((a, b)), read(a, b))[1]

    bit_by_bit = reduce(scheme, roster, 1, [watched(x) for x in values])
    assert bit_by_bit.leaves == whole.leaves and torch.equal(bit_by_bit.residual, whole.residual)
    assert set(asked) == ({(leaf, leaf + 1) for leaf in range(start, stop)} if rule.by_element else {(start, stop)})


def test_what_a_selective_codec_left_out_is_not_the_reducers_to_keep():
    trees, roster = contributions(4)
    start, stop = LAYOUT.parts(4)[0]
    members = [encoded(SCHEME, t[start:stop], start) for t in trees]
    sparse = Sparse(4, 64)
    made = reduce(Scheme(LAYOUT, CODEC, sparse, Mean()), roster, 0, members)
    sent = decode_part(sparse, LAYOUT, made.leaves, start, stop)
    exact = reduce(SCHEME, roster, 0, members)
    mean = decode_part(CODEC, LAYOUT, exact.leaves, start, stop) + exact.residual
    assert 0 < sent.count_nonzero() < sent.numel()
    assert not made.residual[sent == 0.0].any()
    torch.testing.assert_close((made.residual + sent)[sent != 0.0], mean[sent != 0.0])


def test_an_absent_contributor_costs_only_its_share():
    trees, roster = contributions(4)
    start, stop = LAYOUT.parts(4)[1]
    members = [encoded(SCHEME, t[start:stop], start) for t in trees]
    members[2] = None
    made = reduce(SCHEME, roster, 1, members)
    assert made.included == [True, True, False, True]
    body = part_body(1, made.root, roster, made.included)
    assert open_part(record(roster, 1, body), roster).included == {"h0", "h1", "h3"}
    assert carry_factor(roster, made.included, "h2") == 0.0
    assert carry_factor(roster, made.included, "h1") > 1.0


def test_a_part_with_more_norm_than_declared_is_refused():
    trees, roster = contributions(2)
    liar = Commitment("h0", roster.commitments[0].root, roster.commitments[0].norm / 10, 100, 1, b"s" * 32)
    with pytest.raises(BadRecord, match="norm"):
        check_contribution_part(SCHEME, liar, trees[0], 0, LAYOUT.num_leaves)


def test_malformed_leaves_are_refused():
    trees, roster = contributions(2)
    with pytest.raises(CodecError):
        check_contribution_part(SCHEME, roster.commitments[0], [b"", *trees[0][1:]], 0, LAYOUT.num_leaves)


def test_part_records_are_checked_against_the_roster():
    _, roster = contributions(2)
    good = part_body(1, b"p" * 32, roster, [True, False])
    assert open_part(record(roster, 1, good), roster).included == {"h0"}
    for body in (
        good | {"part": 2},
        good | {"part": True},
        good | {"root": b"x"},
        good | {"roster": b"x" * 32},
        good | {"included": b"\x01\x00"},
        good | {"included": b"\x00"},
        {k: v for k, v in good.items() if k != "root"},
    ):
        with pytest.raises(BadRecord):
            open_part(record(roster, 1, body), roster)
    with pytest.raises(BadRecord, match="reducer"):
        open_part(record(roster, 1, good, hotkey="h0"), roster)


def update_of(roster, missing=(), included=("h0", "h1", "h2", "h3")):
    results = {p: PartResult(p, f"h{p}", b"p" * 32, roster.root, frozenset(included)) for p in range(roster.averaged)}
    return Update(roster, torch.zeros(LAYOUT.numel), results=results, missing=list(missing))


def test_what_a_round_took_is_owed_no_longer():
    _, roster = contributions(4)
    spans = [LAYOUT.span(*run) for run in LAYOUT.parts(4)]
    assert update_of(roster).carried("h1", LAYOUT) == spans
    # A part nobody got is owed whole.
    assert update_of(roster, missing=[2]).carried("h1", LAYOUT) == [spans[0], spans[1], spans[3]]
    # Whoever a reducer left out is owed that part.
    assert update_of(roster, included=("h0",)).carried("h1", LAYOUT) == []
    assert update_of(roster).carried("stranger", LAYOUT) == []


def test_a_contribution_that_is_only_scored_piles_nothing_up():
    _, everybody = contributions(4)
    roster = Roster(1, "h0", b"r" * 32, b"s" * 32, everybody.commitments, 3)
    assert update_of(roster).carried("h3", LAYOUT) == [(0, LAYOUT.numel)]


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_a_fetched_state_tells_which_parts_are_in_it(mu):
    """What this peer did not gather may be in the others' state, and the other way round."""
    _, roster = contributions(4)
    generator = torch.Generator().manual_seed(1)
    theta, momentum, delta = (torch.randn(LAYOUT.numel, generator=generator) for _ in range(3))
    lost = LAYOUT.span(*LAYOUT.parts(4)[2])
    delta[lost[0] : lost[1]] = 0.0
    _, after = outer_step(theta, momentum, delta, 0.7, mu)
    words = {part: PartResult(part, f"h{part}", b"x" * 32, roster.root, frozenset({"h1"})) for part in range(4)}
    own = Update(roster, torch.zeros(LAYOUT.numel), results=words, missing=[0])
    found = own.in_state(momentum, after, mu, LAYOUT)
    assert found.missing == [2]
    assert found.carried("h1", LAYOUT) == [LAYOUT.span(*LAYOUT.parts(4)[part]) for part in (0, 1, 3)]
    torch.testing.assert_close(found.delta, delta, rtol=1e-5, atol=1e-6)
