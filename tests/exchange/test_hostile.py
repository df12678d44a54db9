"""Registered peers that play by the form of the protocol and against its purpose: each may harm itself only."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from subnet.data.corpus import Corpus
from subnet.data.prepare import build_shards
from subnet.data.shards import Shards
from subnet.data.tokens import ByteTokenizer
from subnet.diloco.codec import encode_part
from subnet.diloco.merkle import hash_leaves, owned
from subnet.diloco.merkle import root as merkle_root
from subnet.exchange.butterfly import part_body
from subnet.exchange.commitment import Commitment
from subnet.exchange.roster import leader_order, pack_roster
from subnet.exchange.round import Round
from subnet.exchange.window import Window
from subnet.model.build import init_theta
from subnet.scoring.loss import LossScore
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.validator.loop import Finished, Validator

from .conftest import CODEC, LAYOUT, PATIENCE, RUN, Peer, Play, Village, until


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
        peer.exchange._mine = (b"another", [])
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
        updates = await asyncio.gather(*(play.gathering(p, roster, r) for p, r in zip(honest, reduced, strict=True)))
        for update in updates:
            assert update.missing == [part]
            assert torch.equal(update.delta, play.expected(update))
        assert village.clock.block() < play.window.gather_end
        assert all(p.refusals(liar.hotkey) == {"reduced part above any mean's norm": 1} for p in honest)

    village.run(act())


def test_a_copied_commitment_brings_the_copier_nothing(village: Village) -> None:
    """The root is public before the deadline, but bound to its owner: even with the bytes nobody else can show them."""

    async def act() -> None:
        play = await village.open_round(4)
        thief, victim, *others = play.peers
        await play.commit([victim, *others])
        stolen = play.contributions[victim.hotkey]
        seen = owned(stolen.root, victim.hotkey)
        body = Commitment(thief.hotkey, seen, stolen.norm, stolen.tokens, stolen.steps, play.state).body()
        assert await thief.swarm.publish("commit", play.window.round, body)
        await play.all_see("commit", {thief.hotkey})
        rosters = await play.agree()
        # It has pulled the bytes meanwhile, and offers them as its own.
        thief.swarm.store.add(seen, stolen.leaves, owner=victim.hotkey, keep_until_round=play.window.round)
        village.clock.patience = PATIENCE
        reduced = await asyncio.gather(*(play.reducing(p, rosters[0]) for p in [victim, *others]))
        index = [c.hotkey for c in rosters[0].mean].index(thief.hotkey)
        assert not any(r is None or r.included[index] for r in reduced)

    village.run(act())


# Being paid for nothing ---------------------------------------------------------------------------------------------


class Row(NamedTuple):
    hotkey: str
    uid: int


def next_round(play: Play) -> Round:
    """The round in which that of `play` is scored, at its first block."""
    following = Round(Window.of_round(RUN.rounds, play.window.round + 1), play.round.facts)
    play.clock.move_to(following.window.start)
    return following


def validator_of(peer: Peer, play: Play, home: Path) -> Validator:
    """A validator on this peer's exchange, with text of its own; it never sets weights."""
    source, target = home / "text", home / "shards"
    for folder in (source, target):
        folder.mkdir()
    (source / "a.txt").write_text("".join(f"{i} bottles of beer on the wall, " for i in range(2000)))
    build_shards(Corpus("t", source, ("a.txt",), None), ByteTokenizer(), target)

    async def beacon(block: int, deadline: float) -> bytes:
        return block.to_bytes(32, "big")

    async def compute(work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(work, *args)

    neuron = types.SimpleNamespace(
        run=RUN,
        node=types.SimpleNamespace(home=home, device="cpu"),
        shards=Shards(target, RUN.model.seq_len, 0.1),
        layout=LAYOUT,
        exchange=peer.exchange,
        clock=play.clock,
        metagraph=types.SimpleNamespace(rows=[Row(h, uid) for uid, h in enumerate(sorted(play.contributions))]),
        telemetry=types.SimpleNamespace(event=lambda *_, **__: None),
        beacon=beacon,
        compute=compute,
        wait_for=None,  # nobody here is paid
        chain=None,
        signer=None,
        flags=types.SimpleNamespace(netuid=1),
        resumed=None,
    )
    return Validator(neuron)  # type: ignore[arg-type]


@pytest.mark.parametrize("silent", ["one", "everybody"])
def test_who_does_not_show_validators_what_it_committed_to_loses_its_evidence(
    village: Village, tmp_path: Path, silent: str
) -> None:
    """It shows its reducers, and was good before: a validator that cannot score it does not go on believing in it."""

    async def act() -> None:
        play = await village.open_round(4)
        watcher = play.peers[0]
        miners = play.others(watcher)
        await play.commit(miners)
        rosters = await play.agree()
        reduced = [None, *await asyncio.gather(*(play.reducing(p, rosters[0]) for p in miners))]
        update = (await play.gather(play.peers, rosters[0], reduced))[0]
        validator = validator_of(watcher, play, tmp_path)
        good = Observation(LossScore(0.1, 0.001, 0.1, 0.001), 1.0, True)
        before = observe(ScoreTable(), play.window.round - 1, {p.hotkey: good for p in miners}, RUN.scoring)
        validator.table = before
        hiding = {p.hotkey for p in (miners[:1] if silent == "one" else miners)}
        for peer in miners:
            if peer.hotkey in hiding:
                peer.swarm.store.drop(owned(play.contributions[peer.hotkey].root, peer.hotkey))
        village.clock.patience = PATIENCE
        theta = LAYOUT.flatten(init_theta(RUN.model, RUN.seed))
        await validator.score(Finished(play.round, theta, play.window.round, update, frozenset(), ()), next_round(play))
        for hotkey, row in validator.table.rows.items():
            assert row.participation.value == 1.0
            if silent == "everybody":  # that may as well be the validator's own fault
                assert row.evidence == before.rows[hotkey].evidence
            elif hotkey in hiding:
                assert row.evidence.value < before.rows[hotkey].evidence.value
                assert row.rating.mu == min(r.rating.mu for r in validator.table.rows.values())

    village.run(act())


def test_announcing_a_part_that_nobody_can_have_is_not_reducing(village: Village, tmp_path: Path) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        roster = (await play.agree())[0]
        rider, watcher, *_ = play.peers
        rider.swarm.store.add, kept = lambda *_, **__: None, rider.swarm.store.add  # type: ignore[method-assign]
        reduced = await asyncio.gather(*(play.reducing(p, roster) for p in play.peers))
        rider.swarm.store.add = kept  # type: ignore[method-assign]
        part = [c.hotkey for c in roster.commitments].index(rider.hotkey)
        village.clock.patience = PATIENCE
        update = (await play.gather(play.others(rider), roster, reduced[1:], missing=[part]))[0]
        assert update.missing == [part] and part in update.results
        validator = validator_of(watcher, play, tmp_path)
        theta = LAYOUT.flatten(init_theta(RUN.model, RUN.seed))
        finished = Finished(play.round, theta, play.window.round, update, frozenset(), ())
        case = await validator._case(finished, next_round(play))
        seen = validator.judge.begin(case).observations()
        assert {h: o.participation for h, o in seen.items()} == {
            p.hotkey: 0.5 if p is rider else 1.0 for p in play.peers
        }

    village.run(act())
