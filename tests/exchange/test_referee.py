"""Reducers that die or lie: with two for every part nothing is lost, and audits find the lie without a dispute."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from subnet.diloco.aggregate import CenteredClip, Mean
from subnet.diloco.codec import decode_part, encode_part
from subnet.diloco.merkle import hash_leaves
from subnet.diloco.merkle import root as merkle_root
from subnet.diloco.scheme import Scheme
from subnet.exchange import butterfly
from subnet.exchange.butterfly import PartResult, Read, part_body, reduce
from subnet.exchange.commitment import Commitment
from subnet.exchange.referee import drawn, drawn_leaves, made_of, ranked
from subnet.exchange.roster import Roster
from subnet.exchange.round import Update
from subnet.validator.audit import Audit

from .conftest import CODEC, LAYOUT, PATIENCE, Peer, Play, Village, contribution, decoded, random_values

SCHEME = Scheme(LAYOUT, CODEC, CODEC, Mean())
Values = dict[str, torch.Tensor]
NAMES = ["h0", "h1", "h2", "h3"]


def a_round() -> tuple[Roster, Values]:
    """A roster of four and everybody's decoded contribution."""
    made = [contribution(random_values(i)) for i in range(4)]
    commitments = tuple(Commitment(h, c.root, c.norm, 100, 1, b"s" * 32) for h, c in zip(NAMES, made, strict=True))
    return Roster(1, "h0", b"r" * 32, b"s" * 32, commitments, 4), dict(
        zip(NAMES, (decoded(c.leaves) for c in made), strict=True)
    )


def word_on(roster: Roster, part: int, values: Values, included: list[str], reducer: str) -> PartResult:
    members = part_members(values, part)
    made = reduce(SCHEME, roster, part, [members[h] if h in included else None for h in NAMES])
    return PartResult(part, reducer, made.root, roster.root, frozenset(included))


def part_members(values: Values, part: int) -> dict[str, Read | None]:
    first, last = LAYOUT.span(*LAYOUT.parts(4)[part])
    return {h: butterfly.decoded(LAYOUT, x[first:last], LAYOUT.parts(4)[part][0]) for h, x in values.items()}


# Making it again --------------------------------------------------------------------------------------------------


def test_what_was_made_of_the_contributions_comes_out_the_same():
    roster, values = a_round()
    for included in (NAMES, ["h0", "h2"]):
        word = word_on(roster, 1, values, included, "h1")
        assert made_of(SCHEME, roster, word, part_members(values, 1)) is True


def test_one_element_that_is_wrong_and_one_member_that_is_not_in_it_are_found():
    roster, values = a_round()
    honest = word_on(roster, 1, values, NAMES, "h1")
    first, _ = LAYOUT.span(*LAYOUT.parts(4)[1])
    bent = {**values, "h3": values["h3"].clone()}
    bent["h3"][first + 5] += 0.01
    liar = word_on(roster, 1, bent, NAMES, "h1")
    assert made_of(SCHEME, roster, liar, part_members(values, 1)) is False
    boaster = replace(word_on(roster, 1, values, NAMES[:3], "h1"), included=frozenset(NAMES))
    assert made_of(SCHEME, roster, boaster, part_members(values, 1)) is False
    assert made_of(SCHEME, roster, honest, part_members(values, 1)) is True


def test_without_every_contribution_nothing_is_said():
    roster, values = a_round()
    word = word_on(roster, 1, values, NAMES, "h1")
    assert made_of(SCHEME, roster, word, {**part_members(values, 1), "h2": None}) is None


def test_proven_words_come_first_and_lies_not_at_all():
    members = zip(NAMES, (1, 3, 4, 4), strict=True)
    few, many, unknown, lie = (PartResult(0, h, b"x" * 32, b"r" * 32, frozenset(NAMES[:n])) for h, n in members)
    verdicts = {few.reducer: True, many.reducer: True, unknown.reducer: None, lie.reducer: False}
    assert ranked([lie, unknown, few, many], verdicts) == [many, few, unknown]


def test_audits_are_drawn_at_their_rate_and_cannot_be_foreseen():
    parts = sum(len(drawn(bytes([i]) * 32, 100, 0.1)) for i in range(100))
    assert 850 < parts < 1150
    assert drawn(b"a" * 32, 100, 0.1) == drawn(b"a" * 32, 100, 0.1) != drawn(b"b" * 32, 100, 0.1)
    assert drawn(b"a" * 32, 5, 1.0) == list(range(5)) and drawn(b"a" * 32, 5, 0.0) == []


def test_an_audit_names_the_reducer_that_lied():
    roster, values = a_round()
    words = {part: {NAMES[part]: word_on(roster, part, values, NAMES, NAMES[part])} for part in range(4)}
    bent = {**values, "h0": values["h0"] * 1.01}
    words[2] = {"h2": word_on(roster, 2, bent, NAMES, "h2")}
    audit = Audit(SCHEME, Update(roster, torch.zeros(0), words=words), b"b" * 32, 1.0)
    for hotkey, delta in values.items():
        audit.note(hotkey, delta)
    audit.note("a stranger", values["h0"])
    assert audit.wrong() == {"h2"}


def gathered(values: Values, lies: dict[int, float], scheme: Scheme = SCHEME) -> Update:
    """A round in which everybody followed the word of a part's one reducer; `lies`: by part, what its mean is times."""
    roster, _ = a_round()
    update = Update(roster, torch.zeros(LAYOUT.numel))
    for part, (start, stop) in enumerate(LAYOUT.parts(4)):
        members = part_members(values, part)
        leaves = reduce(scheme, roster, part, [members[h] for h in NAMES]).leaves
        if part in lies:
            mean = decode_part(CODEC, LAYOUT, leaves, start, stop) * lies[part]
            leaves = encode_part(CODEC, LAYOUT, mean, start, stop)
        update.delta[slice(*LAYOUT.span(start, stop))] = decode_part(CODEC, LAYOUT, leaves, start, stop)
        word = PartResult(part, NAMES[part], merkle_root(hash_leaves(leaves)), roster.root, frozenset(NAMES))
        update.words[part] = {word.reducer: word}
        update.results[part] = word
    return update


def audited(update: Update, values: Values, scheme: Scheme = SCHEME) -> set[str]:
    audit = Audit(scheme, update, b"b" * 32, 0.0)
    for hotkey, delta in values.items():
        audit.note(hotkey, delta)
    return audit.wrong()


def test_who_turns_its_whole_part_round_is_found_in_that_round_by_a_few_leaves():
    _, values = a_round()
    assert audited(gathered(values, {}), values) == set()
    assert audited(gathered(values, {1: -1.0, 3: 0.5}), values) == {"h1", "h3"}


def test_whoever_signed_for_the_same_lie_is_found_with_its_reducer():
    _, values = a_round()
    update = gathered(values, {1: -1.0})
    update.words[1]["h2"] = replace(update.results[1], reducer="h2")
    update.words[1]["h3"] = replace(update.results[1], reducer="h3", root=b"x" * 32)
    assert audited(update, values) == {"h1", "h2"}


def test_no_leaf_speaks_of_a_part_that_never_came_or_without_every_contribution_or_of_what_is_made_of_whole_parts():
    _, values = a_round()
    lie = gathered(values, {1: -1.0})
    assert audited(replace(lie, missing=[1]), values) == set()
    assert audited(lie, {h: x for h, x in values.items() if h != "h0"}) == set()
    clip = replace(SCHEME, rule=CenteredClip(1.0, 3))
    assert audited(gathered(values, {1: -1.0}, clip), values, clip) == set()


def test_leaves_are_drawn_within_their_part():
    draws = [drawn_leaves(bytes([i]) * 32, 3, 40, 50, 2) for i in range(200)]
    assert {leaf for leaves in draws for leaf in leaves} == set(range(40, 50))
    assert all(1 <= len(leaves) <= 2 for leaves in draws) and drawn_leaves(b"a" * 32, 0, 7, 8, 2) == [7]


# Two for every part -----------------------------------------------------------------------------------------------


async def everybody_reduces(play: Play, peers: list[Peer], roster: Roster) -> list[list]:
    return list(await asyncio.gather(*(p.exchange.reduce(play.round, roster) for p in peers)))


def lie_about(play: Play, liar: Peer, roster: Roster, part: int) -> tuple[bytes, list[bytes], dict]:
    """The liar's version of a part: the honest mean but for one element."""
    start, stop = roster.parts(LAYOUT)[part]
    first, last = LAYOUT.span(start, stop)
    members = [decoded(play.contributions[c.hotkey].leaves)[first:last] for c in roster.mean]
    mean = Mean().reduce(members, [c.tokens for c in roster.mean], [c.norm for c in roster.mean])
    mean[3] = mean.abs().max()
    leaves = encode_part(CODEC, LAYOUT, mean, start, stop)
    root = merkle_root(hash_leaves(leaves))
    return root, leaves, part_body(part, root, roster, [True] * roster.averaged)


@pytest.mark.parametrize("redundancy", [2, 3])
def test_everybody_reduces_as_many_parts_as_the_run_says(village: Village, redundancy: int) -> None:
    async def act() -> None:
        play = await village.open_round(4, redundancy=redundancy)
        await play.commit()
        roster = (await play.agree())[0]
        reduced = await everybody_reduces(play, play.peers, roster)
        assert all(len(parts) == redundancy for parts in reduced)
        for part in range(4):
            roots = {r.root for parts in reduced for r in parts if r.part == part}
            assert len(roots) == 1  # the same bits from everybody
        tasks = [p.exchange.gather(play.round, roster, r) for p, r in zip(play.peers, reduced, strict=True)]
        updates = await asyncio.gather(*tasks)
        for update in updates:
            assert not update.missing and not update.faults
            assert torch.equal(update.delta, play.expected(update))
        assert village.clock.block() < play.window.gather_end

    village.run(act())


def test_a_reducer_that_dies_costs_no_part(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4, redundancy=2)
        await play.commit()
        roster = (await play.agree())[0]
        dead, *alive = play.peers
        # It delivers its contribution, and is gone before it has reduced anything.
        reduced = await everybody_reduces(play, alive, roster)
        await village.end(dead)
        village.clock.patience = PATIENCE
        tasks = [
            asyncio.ensure_future(p.exchange.gather(play.round, roster, r)) for p, r in zip(alive, reduced, strict=True)
        ]
        village.clock.move_to((play.window.scatter_end + play.window.gather_end) / 2)
        updates = await asyncio.gather(*tasks)
        for update in updates:
            assert update.missing == []
            assert torch.equal(update.delta, updates[0].delta)
            assert torch.equal(update.delta, play.expected(update))
            assert all(len(result.included) == 4 for result in update.results.values())

    village.run(act())


@pytest.mark.parametrize("place", [0, 1])
def test_a_reducer_that_lies_in_one_element_is_caught_in_that_round(village: Village, place: int) -> None:
    async def act() -> None:
        play = await village.open_round(4, redundancy=2)
        await play.commit()
        roster = (await play.agree())[0]
        by_hotkey = {p.hotkey: p for p in play.peers}
        liar = by_hotkey[roster.reducers(1, 2)[place]]
        honest = play.others(liar)
        root, leaves, body = lie_about(play, liar, roster, 1)
        liar.swarm.store.add(root, leaves, keep_until_round=play.window.round)
        assert await liar.swarm.publish("part", play.window.round, body, subkey="1")
        reduced = await everybody_reduces(play, honest, roster)
        (other,) = [p for p in await liar.exchange.reduce(play.round, roster) if p.part != 1]
        assert other.included == [True] * 4
        await liar.swarm.publish("part", play.window.round, body, subkey="1")  # its lie is the word that stands
        tasks = [p.exchange.gather(play.round, roster, r) for p, r in zip(honest, reduced, strict=True)]
        updates = await asyncio.gather(*tasks)
        for peer, update in zip(honest, updates, strict=True):
            assert update.missing == [] and update.faults == {liar.hotkey}
            assert torch.equal(update.delta, play.expected(update))
            assert peer.refusals(liar.hotkey) == {"reduced part is not what its contributions give": 1}

    village.run(act())
