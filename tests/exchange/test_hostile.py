"""Registered peers that play by the form of the protocol and against its purpose: each may harm itself only."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from subnet.diloco.codec import encode_part
from subnet.diloco.merkle import hash_leaves
from subnet.diloco.merkle import root as merkle_root
from subnet.exchange.butterfly import part_body
from subnet.exchange.roster import leader_order, pack_roster

from .conftest import CODEC, LAYOUT, PATIENCE, RUN, Peer, Play, Village, contribution, random_values, until


async def in_order(play: Play) -> list[Peer]:
    """The round's peers in the order in which they may lead."""
    facts = await play.round.facts
    by_hotkey = {p.hotkey: p for p in play.peers}
    return [by_hotkey[h] for h in leader_order(facts.beacon, facts.members.values())]


def test_a_leader_that_lists_nobody_is_passed_over(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        first, second, *_ = await in_order(play)
        blob = pack_roster(play.state, 0, [])
        root = merkle_root(hash_leaves([blob]))
        first.swarm.store.add(root, [blob], keep_until_round=play.window.round)
        await first.swarm.publish("roster", play.window.round, {"root": root, "size": len(blob)})
        honest = play.others(first)
        await play.all_see("roster", {first.hotkey}, by=honest)
        village.clock.move_to(play.window.commit_end + RUN.rounds.leader_blocks)
        waiting = [asyncio.ensure_future(play.agreeing(p)) for p in honest]
        await play.all_see("roster", {second.hotkey}, by=honest)
        good = next(r for r in await second.swarm.records("roster", play.window.round) if r.hotkey == second.hotkey)
        await until(lambda: all(p.swarm.store.entry(good.body["root"]) for p in honest))
        village.clock.move_to(play.window.roster_end)
        rosters = await asyncio.gather(*waiting)
        assert {r.leader for r in rosters} == {second.hotkey}
        assert all(p.refusals(first.hotkey) == {"roster lists nobody": 1} for p in honest)

    village.run(act())


def test_a_reducer_that_has_nothing_to_average_offers_no_part(village: Village) -> None:
    """It committed, started again in the same round with another contribution, and nobody else delivers."""

    async def act() -> None:
        play = await village.open_round(2)
        await play.commit()
        roster = (await play.agree())[0]
        peer, gone = play.peers
        play.contributions[peer.hotkey] = contribution(random_values(77))
        await village.end(gone)
        village.clock.patience = PATIENCE
        assert await play.reducing(peer, roster) is None

    village.run(act())


@pytest.mark.parametrize("factor", [3.0, 1e20])
def test_a_reducer_that_signs_more_than_any_mean_can_be_costs_its_part(village: Village, factor: float) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        liar, *honest = play.peers
        part = [c.hotkey for c in roster.commitments].index(liar.hotkey)
        start, stop = LAYOUT.parts(4)[part]
        first, last = LAYOUT.span(start, stop)
        direction = torch.ones(last - first) / (last - first) ** 0.5
        leaves = encode_part(CODEC, LAYOUT, direction * (factor * max(c.norm for c in roster.mean)), start, stop)
        root = merkle_root(hash_leaves(leaves))
        liar.swarm.store.add(root, leaves, keep_until_round=play.window.round)
        body = part_body(part, root, roster, [True] * 4)
        assert await liar.swarm.publish("part", play.window.round, body, subkey=str(part))
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in honest))
        await play.all_see("part", {liar.hotkey})
        updates = await asyncio.gather(
            *(p.exchange.gather(play.round, roster, r) for p, r in zip(honest, reduced, strict=True))
        )
        for update in updates:
            assert update.missing == [part]
            assert torch.equal(update.delta, play.expected(update))
        assert village.clock.block() < play.window.gather_end
        assert all(p.refusals(liar.hotkey) == {"reduced part above any mean's norm": 1} for p in honest)

    village.run(act())


def test_a_copied_commitment_brings_the_copier_nothing(village: Village) -> None:
    """The root is public before the deadline; the bytes are not, and whoever cannot show them is left out."""

    async def act() -> None:
        play = await village.open_round(4)
        thief, victim, *others = play.peers
        await play.commit([victim, *others])
        stolen = play.contributions[victim.hotkey]
        play.contributions[thief.hotkey] = replace(stolen, leaves=[])
        await play.commit([thief])
        del play.contributions[thief.hotkey]  # it has nothing to offer
        rosters = await play.agree()
        village.clock.patience = PATIENCE
        reduced = await asyncio.gather(*(play.reducing(p, rosters[0]) for p in [victim, *others]))
        index = [c.hotkey for c in rosters[0].mean].index(thief.hotkey)
        assert not any(r is None or r.included[index] for r in reduced)

    village.run(act())
