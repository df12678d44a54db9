"""Whole rounds of real peers over libp2p on this machine: honest ones, ones with deaths, ones with liars."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subnet.diloco.aggregate import mean_weights
from subnet.diloco.codec import encode_tree
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.merkle import Tree, hash_leaves, owned
from subnet.diloco.merkle import root as merkle_root
from subnet.exchange.butterfly import part_body
from subnet.exchange.commitment import Commitment, Contribution
from subnet.exchange.roster import Roster, leader_order
from subnet.exchange.round import Update
from subnet.miner.loop import Miner
from subnet.swarm.blobs import FetchError

from .conftest import (
    CODEC,
    LAYOUT,
    PATIENCE,
    RUN,
    STATE,
    Peer,
    Play,
    Village,
    contribution,
    decoded,
    random_values,
    until,
)


def part_of(roster: Roster, peer: Peer) -> int:
    """The part this peer reduces."""
    return [c.hotkey for c in roster.commitments].index(peer.hotkey)


async def in_order(play: Play) -> list[Peer]:
    """The round's peers in the order in which they may lead."""
    facts = await play.round.facts
    by_hotkey = {p.hotkey: p for p in play.peers}
    return [by_hotkey[h] for h in leader_order(facts.beacon, facts.members.values())]


def check_alike(play: Play, updates: Sequence[Update], missing: Sequence[int]) -> None:
    """Everybody has the same delta, it is the mean of what it says it is, and just these parts are missing."""
    for update in updates:
        assert update.missing == list(missing)
        assert torch.equal(update.delta, updates[0].delta)
    assert torch.equal(updates[0].delta, play.expected(updates[0]))
    assert bool(updates[0].delta.any())


@pytest.mark.parametrize("n", [2, 4, 8])
def test_everybody_ends_with_the_same_reference_mean(village: Village, n: int) -> None:
    async def act() -> None:
        play = await village.open_round(n)
        await play.commit()
        updates = await play.average()
        check_alike(play, updates, missing=[])
        everybody = {p.hotkey for p in play.peers}
        for update in updates:
            assert update.roster.averaged == n == len(update.results)
            assert all(result.included == everybody for result in update.results.values())
        assert not any(p.exchange.refusals.counted for p in play.peers)

    village.run(act())


def test_who_is_listed_but_not_averaged_follows_all_the_same(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(8, earning=[0, 1, 2, 3])
        await play.commit()
        updates = await play.average()
        check_alike(play, updates, missing=[])
        roster = updates[0].roster
        assert (len(roster.commitments), roster.averaged) == (8, 4 + RUN.rounds.newcomers)
        earning = {p.hotkey for p in play.peers[:4]}
        assert earning <= {c.hotkey for c in roster.mean}
        reducing = {p.hotkey for p, u in zip(play.peers, updates, strict=True) if u.reduced}
        assert reducing == earning

    village.run(act())


# Deaths ----------------------------------------------------------------------------------------------------------


def test_gone_after_the_commitment_costs_the_contribution_and_the_part(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        dead = (await in_order(play))[-1]
        alive = play.others(dead)
        await village.end(dead)
        village.clock.patience = PATIENCE
        updates = await play.average(alive)
        check_alike(play, updates, missing=[part_of(updates[0].roster, dead)])
        survivors = {p.hotkey for p in alive}
        assert all(r.included == survivors for u in updates for r in u.results.values())

    village.run(act())


def test_gone_during_scatter_costs_the_parts_it_had_not_served(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        dead = play.peers[3]
        early, *late = play.others(dead)
        reduced = [await play.reducing(early, roster)]
        await village.end(dead)
        village.clock.patience = PATIENCE
        reduced += await asyncio.gather(*(play.reducing(p, roster) for p in late))
        updates = await play.gather([early, *late], roster, reduced)
        check_alike(play, updates, missing=[part_of(roster, dead)])
        for update in updates:
            held = {part for part, result in update.results.items() if dead.hotkey in result.included}
            assert held == {part_of(roster, early)}
        assert all(p.refusals(dead.hotkey)["not delivered"] >= 1 for p in late)

    village.run(act())


def test_gone_between_reducing_and_publishing_costs_the_part(village: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        dead, *alive = play.peers
        publishing = asyncio.Event()

        async def never(*_: Any, **__: Any) -> bool:
            publishing.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        monkeypatch.setattr(dead.swarm, "publish", never)
        dying = asyncio.ensure_future(play.reducing(dead, roster))
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in alive))
        await publishing.wait()
        dying.cancel()
        await village.end(dead)
        updates = await play.gather(alive, roster, reduced)
        check_alike(play, updates, missing=[part_of(roster, dead)])
        everybody = {p.hotkey for p in play.peers}
        assert all(r.included == everybody for u in updates for r in u.results.values())

    village.run(act())


def test_gone_before_anybody_gathered_costs_the_part(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in play.peers))
        dead, *alive = play.peers
        await play.all_see("part", {dead.hotkey}, by=alive)
        await village.end(dead)
        village.clock.patience = PATIENCE
        updates = await play.gather(alive, roster, reduced[1:])
        check_alike(play, updates, missing=[part_of(roster, dead)])

    village.run(act())


def test_gone_during_gather_costs_nothing_once_one_peer_has_its_part(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in play.peers))
        dead, first, *rest = play.peers
        updates = [await play.gathering(first, roster, reduced[1])]
        await village.end(dead)
        updates += await asyncio.gather(*(play.gathering(p, roster, None) for p in rest))
        check_alike(play, updates, missing=[])
        assert village.clock.block() < play.window.gather_end

    village.run(act())


def test_the_next_leader_takes_over_from_one_that_is_gone(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4, permits=[1])
        first, second, *_ = await in_order(play)
        assert first is play.peers[1]
        await play.commit()
        await village.end(first)
        alive = play.others(first)
        village.clock.patience = PATIENCE
        village.clock.move_to(play.window.commit_end)
        waiting = [asyncio.ensure_future(play.agreeing(p)) for p in alive]
        # The first is still counted as live. Whose turn it is depends on the block alone.
        village.clock.move_to(play.window.commit_end + RUN.rounds.leader_blocks)
        await play.all_see("roster", {second.hotkey}, by=alive)
        # Whoever has noticed already that the first is gone counts the third's turn from there: it may speak as well.
        record = next(r for r in await second.swarm.records("roster", play.window.round) if r.hotkey == second.hotkey)
        await until(lambda: all(p.swarm.store.entry(record.body["root"]) for p in alive))
        village.clock.move_to(play.window.roster_end)
        rosters = await asyncio.gather(*waiting)
        assert {(r.leader, r.root) for r in rosters} == {(second.hotkey, record.body["root"])}
        # Its commitment had reached the others.
        assert {c.hotkey for c in rosters[0].commitments} == {p.hotkey for p in play.peers}

    village.run(act())


def test_a_leader_that_breaks_a_rule_is_passed_over(village: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        first, second, *_ = await in_order(play)
        blob = b"\x80"  # an empty map
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
        assert all(p.refusals(first.hotkey) == {"roster fields": 1} for p in honest)

    village.run(act())


def test_a_peer_leaves_even_if_it_is_woken_at_that_very_moment(village: Village) -> None:
    async def act() -> None:
        (peer,) = await village.assemble(1)
        await until(lambda: bool(peer.swarm._membership.wake._waiters))  # type: ignore[attr-defined]
        await peer.swarm.enter_round(village.round, [peer.hotkey])
        await asyncio.wait_for(village.end(peer), 20.0)

    village.run(act())


# Commit, then reveal ------------------------------------------------------------------------------------------------


def test_a_late_commitment_is_not_published(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(2)
        late, punctual = play.peers
        await play.commit([punctual])
        village.clock.move_to(play.window.commit_end)
        assert not await late.exchange.commit(play.round, contribution(random_values(1)), STATE)
        rosters = await play.agree()
        assert [[c.hotkey for c in r.commitments] for r in rosters] == [[punctual.hotkey]] * 2

    village.run(act())


def test_a_commitment_published_after_the_roster_does_not_enter(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        *punctual, late = await in_order(play)
        await play.commit(punctual)
        roster = (await play.agree(punctual))[0]
        play.contributions[late.hotkey] = mine = contribution(random_values(2))
        body = Commitment(late.hotkey, owned(mine.root, late.hotkey), mine.norm, mine.tokens, mine.steps, STATE).body()
        assert await late.swarm.publish("commit", play.window.round, body)
        await play.all_see("commit", {late.hotkey})
        rosters = await play.agree([late])
        assert [r.root for r in rosters] == [roster.root]
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in play.peers))
        assert reduced[play.peers.index(late)] is None
        updates = await play.gather(play.peers, roster, reduced)
        check_alike(play, updates, missing=[])
        assert all(late.hotkey not in r.included for u in updates for r in u.results.values())

    village.run(act())


def test_no_byte_is_served_before_a_roster_nor_before_the_deadline(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(2)
        await play.commit()
        curious, owner = await in_order(play)
        root = owned(play.contributions[owner.hotkey].root, owner.hotkey)
        served = owner.swarm.traffic.up[curious.hotkey]

        async def fetch() -> list[bytes]:
            size = CODEC.max_encoded_size(RUN.codec.leaf_size)
            return await curious.swarm.fetch_leaves(
                [owner.hotkey], root, LAYOUT.num_leaves, 0, 1, lambda _: size, 3.0, owner.hotkey
            )

        with pytest.raises(FetchError, match="unknown root"):
            await fetch()
        village.clock.move_to(play.window.commit_end - 0.01)
        waiting = [asyncio.ensure_future(play.agreeing(p)) for p in play.peers]
        with pytest.raises(FetchError, match="unknown root"):
            await fetch()
        village.clock.move_to(play.window.commit_end)
        rosters = await asyncio.gather(*waiting)
        assert len({r.root for r in rosters}) == 1
        # Whatever a leader says, the owner's own clock must have reached the deadline as well.
        village.clock.move_to(play.window.commit_end - 0.01)
        with pytest.raises(FetchError, match="not yet"):
            await fetch()
        assert owner.swarm.traffic.up[curious.hotkey] == served
        village.clock.move_to(play.window.commit_end)
        assert await fetch() == list(play.contributions[owner.hotkey].leaves[:1])

    village.run(act())


def test_a_commitment_from_another_state_is_not_listed(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4, permits=[1])  # so that it is not the one astray who leads
        astray, *rest = play.peers
        assert await astray.exchange.commit(play.round, contribution(random_values(3)), b"x" * 32)
        await play.commit(rest)
        await play.all_see("commit", {astray.hotkey})
        rosters = await play.agree(rest)
        assert {r.root for r in rosters} == {rosters[0].root}
        assert {c.hotkey for c in rosters[0].commitments} == {p.hotkey for p in rest}

    village.run(act())


# Hindsight ---------------------------------------------------------------------------------------------------------


def test_who_missed_the_roster_learns_what_of_its_work_was_taken(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        absent, *present = play.peers
        rosters = await play.agree()
        absent_part = part_of(rosters[0], absent)
        hindsight = absent.exchange.leadership.hindsight
        assert await hindsight(play.round, play.state) is None  # nobody has reduced anything yet
        reduced = await asyncio.gather(*(play.reducing(p, rosters[0]) for p in present))
        updates = await play.gather(present, rosters[0], reduced, missing=[absent_part])
        play.clock.move_to(play.window.end)
        found = await hindsight(play.round, play.state)
        assert found is not None
        assert (found.roster.root, found.results, found.reduced) == (rosters[0].root, updates[0].results, [])
        whole = [LAYOUT.span(*run) for part, run in enumerate(LAYOUT.parts(4)) if part != absent_part]
        assert found.carried(absent.hotkey, LAYOUT) == whole

    village.run(act())


# Liars -------------------------------------------------------------------------------------------------------------


class ForgedLeaves:
    """Leaves that hash as committed, but are others when somebody asks for them."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.leaves = leaves

    def __getitem__(self, run: slice) -> list[bytes]:
        return self.leaves[run]

    def leaf_hashes(self) -> list[bytes]:
        return hash_leaves(self.leaves)

    def leaf(self, index: int) -> bytes:
        return self.leaves[index][:-1] + bytes([self.leaves[index][-1] ^ 1])


def test_lying_contributors_are_dropped_and_counted(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(8)
        forger, poisoner, boaster, *honest = play.peers
        good = contribution(random_values(4))
        play.contributions[forger.hotkey] = replace(good, leaves=ForgedLeaves(list(good.leaves)))  # type: ignore[arg-type]
        poison = [b"\x00\x00\xc0\x7f" + leaf[4:] for leaf in encode_tree(CODEC, LAYOUT, random_values(5))]  # NaN
        play.contributions[poisoner.hotkey] = Contribution(poison, Tree(hash_leaves(poison)), 1.0, 100, 2)
        loud = contribution(random_values(6) * 100)
        play.contributions[boaster.hotkey] = replace(loud, norm=loud.norm / 100)
        await play.commit()
        updates = await play.average()
        play.contributions[forger.hotkey] = good
        check_alike(play, updates, missing=[])
        for peer in honest:
            assert peer.refusals(poisoner.hotkey) == {"a scale is not finite or out of range": 1}
            assert peer.refusals(boaster.hotkey) == {"part norm above the declared norm": 1}
            assert peer.refusals(forger.hotkey) == {"not delivered": 1}
        liars = {forger.hotkey, poisoner.hotkey, boaster.hotkey}
        roster = updates[0].roster
        for part, result in updates[0].results.items():
            own = {forger.hotkey} if part == part_of(roster, forger) else set()
            assert result.included & liars == own
            assert {p.hotkey for p in honest} <= result.included

    village.run(act())


def test_a_reduced_part_that_does_not_decode_is_missing_for_everybody(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        liar, *honest = play.peers
        part = part_of(roster, liar)
        start, stop = LAYOUT.parts(4)[part]
        sizes = [CODEC.max_encoded_size(b - a) for a, b in LAYOUT.leaves[start:stop]]
        junk = [b"\xff" * size for size in sizes]
        root = merkle_root(hash_leaves(junk))
        liar.swarm.store.add(root, junk, keep_until_round=play.window.round)
        body = part_body(part, root, roster, [True] * 4)
        assert await liar.swarm.publish("part", play.window.round, body, subkey=str(part))
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in honest))
        await play.all_see("part", {liar.hotkey})
        updates = await asyncio.gather(*(play.gathering(p, roster, r) for p, r in zip(honest, reduced, strict=True)))
        check_alike(play, updates, missing=[part])
        # The bytes are what was signed: asking again would bring the same ones, so nobody waits for the deadline.
        assert village.clock.block() < play.window.gather_end
        assert all(p.refusals(liar.hotkey) == {"a scale is not finite or out of range": 1} for p in honest)

    village.run(act())


def test_a_part_by_another_than_its_reducer_is_dropped_once(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        liar, victim, *_ = play.peers
        part = part_of(roster, victim)
        body = part_body(part, b"\x01" * 32, roster, [True] * 4)
        assert await liar.swarm.publish("part", play.window.round, body, subkey=str(part))
        await play.all_see("part", {liar.hotkey})
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in play.peers))
        updates = await play.gather(play.peers, roster, reduced)
        check_alike(play, updates, missing=[])
        assert all(p.refusals(liar.hotkey) == {"part by another hotkey than its reducer": 1} for p in play.peers)

    village.run(act())


# Nothing is lost -------------------------------------------------------------------------------------------------


def miner_of(peer: Peer) -> Miner:
    """A miner without a model: what it owes and how it settles, on this peer's exchange."""
    miner = object.__new__(Miner)
    miner.neuron = SimpleNamespace(signer=peer.signer, layout=LAYOUT, exchange=peer.exchange)  # type: ignore[assignment]
    miner.feedback = ErrorFeedback(LAYOUT.numel)
    miner._sent = None
    return miner


def owed_as_reducer(play: Play, peer: Peer, update: Update) -> torch.Tensor:
    """What the output codec lost of this peer's part, scaled so that its own share of a later mean restores it."""
    owed = torch.zeros(LAYOUT.numel, dtype=torch.float64)
    part = part_of(update.roster, peer)
    first, last = LAYOUT.span(*update.roster.parts(LAYOUT)[part])
    there = [c for c in update.roster.mean if c.hotkey in update.results[part].included]
    shares = mean_weights([c.tokens for c in there], [c.norm for c in there])
    exact = torch.zeros(last - first)
    for commitment, share in zip(there, shares, strict=True):
        exact += decoded(play.contributions[commitment.hotkey].leaves)[first:last] * share
    own = shares[[c.hotkey for c in there].index(peer.hotkey)]
    owed[first:last] = (exact - update.delta[first:last]).double() / own
    return owed


def taken_from(play: Play, peer: Peer, update: Update) -> torch.Tensor:
    """What of this peer's contribution is in the update."""
    taken = torch.zeros(LAYOUT.numel, dtype=torch.float64)
    for part, run in enumerate(update.roster.parts(LAYOUT)):
        first, last = LAYOUT.span(*run)
        if part not in update.missing and peer.hotkey in update.results[part].included:
            taken[first:last] = decoded(play.contributions[peer.hotkey].leaves)[first:last].double()
    return taken


def test_what_a_round_did_not_carry_stays_in_the_error_feedback(
    village: Village, monkeypatch: pytest.MonkeyPatch
) -> None:
    """computed = carried + owed, over rounds with a commitment that is not made and a part that cannot be published."""

    async def unpublished(*_: Any, **__: Any) -> bool:
        return False

    async def act() -> None:
        miners: dict[str, Miner] = {}
        balance: dict[str, torch.Tensor] = {}
        for number, trouble in enumerate(["none", "no commitment", "no part", "none"]):
            play = await village.open_round(4)
            troubled = play.peers[number]
            for index, peer in enumerate(play.peers):
                miner = miners.setdefault(peer.hotkey, miner_of(peer))
                gradient = random_values(50 * number + index)
                balance[peer.hotkey] = balance.get(peer.hotkey, torch.zeros(LAYOUT.numel)).double() + gradient.double()
                play.contributions[peer.hotkey] = contribution(miner.feedback.add(gradient))
                miner._sent = decoded(play.contributions[peer.hotkey].leaves)
            await play.commit(play.others(troubled) if trouble == "no commitment" else play.peers)
            roster = (await play.agree())[0]
            with monkeypatch.context() as patch:
                if trouble == "no part":
                    patch.setattr(troubled.swarm, "publish", unpublished)
                reduced = await asyncio.gather(*(play.reducing(p, roster) for p in play.peers))
            silent = [part_of(roster, troubled)] if trouble == "no part" else []
            updates = await play.gather(play.peers, roster, reduced, missing=silent)
            check_alike(play, updates, missing=silent)
            for peer, update in zip(play.peers, updates, strict=True):
                miners[peer.hotkey].settle(update)
                balance[peer.hotkey] -= taken_from(play, peer, update)
                if update.reduced and part_of(roster, peer) not in silent:
                    balance[peer.hotkey] += owed_as_reducer(play, peer, update)
        for hotkey, miner in miners.items():
            owed = miner.feedback.residual.double()
            assert float((balance[hotkey] - owed).abs().max()) < 1e-7 < 1e-5 < float(owed.abs().max())

    village.run(act())
