"""One peer among claims that are true, stale or lies: real peers, and who is believed after a lie."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import pytest
import torch

from subnet.diloco.codec import reduced_codec_of
from subnet.diloco.layout import Layout
from subnet.diloco.state import OuterState
from subnet.exchange import fetch
from subnet.exchange.agreement import Consensus
from subnet.exchange.claims import Agreement, publish_claim
from subnet.exchange.majority import Standing, claim_body

from .conftest import RUN, Peer, Play, Village

SMALL = Layout.of([("a", (64, 32)), ("b", (8, 16))], 256)
STEPPING = fetch.Stepping(reduced_codec_of(RUN.codec), RUN.outer)
EARNER = Standing(established=True)
seeds = itertools.count(5000)


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PATIENCE_SECONDS", 4.0)


def random_state(step: int) -> OuterState:
    generator = torch.Generator().manual_seed(next(seeds))
    theta, momentum = (torch.randn(SMALL.numel, generator=generator) for _ in range(2))
    return OuterState(theta, momentum, step, SMALL)


def consensus(play: Play, peer: Peer, state: OuterState) -> Consensus:
    home, clock = play.village.homes / peer.hotkey, cast(Any, play.clock)
    return Consensus(peer.swarm, clock, RUN.rounds, STEPPING, home, state, lambda window, hotkey, error: None)


async def lie(play: Play, peer: Peer, step: int) -> None:
    """Claim a state that nobody holds."""
    await peer.swarm.publish("digest", play.window.round - 1, claim_body(step, b"nowhere" + bytes(25)))
    await seen(play, {peer.hotkey})


async def seen(play: Play, hotkeys: set[str]) -> None:
    """Until these hotkeys' claims of the last round have reached everybody."""
    for peer in play.peers:
        while not hotkeys <= {r.hotkey for r in await peer.swarm.records("digest", play.window.round - 1)}:
            await asyncio.sleep(0.05)


def test_after_a_restart_a_lone_other_claim_costs_no_round_unless_it_is_later(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(2)
        me, other = play.peers
        theirs = consensus(play, other, random_state(5))
        await publish_claim(other.swarm, play.window.round - 1, theirs.state)
        await seen(play, {other.hotkey})
        mine = consensus(play, me, random_state(7))
        before, received = mine.state, sum(me.swarm.traffic.down.values())
        found = await mine.catch_up(play.window, {other.hotkey: Standing(stake=1e9)})
        assert found.agreed and mine.state is before and sum(me.swarm.traffic.down.values()) == received
        # The one that is behind follows the other way round.
        await publish_claim(me.swarm, play.window.round - 1, mine.state)
        await seen(play, {me.hotkey})
        caught_up = await theirs.catch_up(play.window, {})
        assert caught_up.repaired_leaves > 0 and theirs.state.digest() == mine.state.digest()

    village.run(act())


def test_a_claim_that_nobody_can_deliver_is_tried_once_and_then_left_alone(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(2)
        me, liar = play.peers
        mine = consensus(play, me, random_state(3))
        await lie(play, liar, 9)
        first = await mine.catch_up(play.window, {})
        assert not first.agreed and first.majority is not None and first.majority.holders == (liar.hotkey,)
        second = await asyncio.wait_for(mine.catch_up(play.window, {}), 3.0)
        assert second == Agreement(second.majority, agreed=True)
        assert second.majority is not None and second.majority.holders == (me.hotkey,)
        assert mine.state.step == 3

    village.run(act())


def test_an_earners_own_state_is_not_given_up_for_a_newcomers_claim(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(2)
        me, liar = play.peers
        mine = consensus(play, me, random_state(3))
        await lie(play, liar, 9)
        assert (await mine.catch_up(play.window, {me.hotkey: EARNER})).agreed

    village.run(act())


def test_at_the_end_of_a_round_everybody_follows_the_same_state(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(3)
        good = random_state(8)
        states = [good, good.clone(), random_state(8)]
        everybody = {p.hotkey for p in play.peers}
        parts = [consensus(play, peer, state) for peer, state in zip(play.peers, states, strict=True)]
        ended = await asyncio.gather(*(c.settle(play.window, {}, everybody) for c in parts))
        assert [a.agreed for a in ended] == [True, True, False]
        assert {c.state.digest() for c in parts} == {good.digest()}
        assert {r.body["root"] for r in await play.peers[0].swarm.records("digest", play.window.round)} == {good.root()}

    village.run(act())


def test_two_that_differ_at_the_same_step_agree_at_the_end_of_the_round(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(2)
        parts = [consensus(play, peer, random_state(8)) for peer in play.peers]
        staked = {play.peers[1].hotkey: Standing(stake=5.0)}
        everybody = {p.hotkey for p in play.peers}
        theirs = parts[1].state.digest()
        ended = await asyncio.gather(*(c.settle(play.window, staked, everybody) for c in parts))
        assert [a.agreed for a in ended] == [False, True]
        assert {c.state.digest() for c in parts} == {theirs}

    village.run(act())


def test_whoever_catches_up_has_no_vote_in_the_round_before_playing_it(village: Village) -> None:
    """Its vote would be one for the state before the round, and end the others' wait for its real one."""

    async def act() -> None:
        play = await village.open_round(3)
        late, *others = play.peers
        good = random_state(5)
        for peer in others:
            await publish_claim(peer.swarm, play.window.round - 1, consensus(play, peer, good).state)
        await seen(play, {p.hotkey for p in others})
        behind = consensus(play, late, random_state(4))
        assert (await behind.catch_up(play.window, {})).repaired_leaves > 0
        await seen(play, {late.hotkey})
        claims = {r.hotkey: r.body["root"] for r in await others[0].swarm.records("digest", play.window.round - 1)}
        assert claims[late.hotkey] == good.root()
        assert await others[0].swarm.records("digest", play.window.round) == []
        # So the others wait for it, and are not outvoted by a state that this round has replaced.
        waiting = [asyncio.ensure_future(settled(play, peer, good)) for peer in others]
        assert not (await asyncio.wait(waiting, timeout=1.0))[0]
        play.clock.move_to(play.window.end - 1)
        assert all(a.agreed for a in await asyncio.gather(*waiting))

    async def settled(play: Play, peer: Peer, before: OuterState) -> Agreement:
        after = OuterState(before.theta - 1.0, before.momentum, before.step + 1, SMALL)
        return await consensus(play, peer, after).settle(play.window, {}, {p.hotkey for p in play.peers})

    village.run(act())
