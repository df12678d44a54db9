"""States that drifted, fell behind or are new, and what it costs to agree again: real peers, counted bytes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

import pytest
import torch

from subnet.diloco.codec import reduced_codec_of
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import HASH_BYTES
from subnet.diloco.state import OuterState
from subnet.exchange.claims import await_claims, claims_of, publish_claim
from subnet.exchange.fetch import RUN_LEAVES, StateFetch, Stepping
from subnet.exchange.majority import Claim, Majority, claim_body, majority
from subnet.exchange.unfinished import Unfinished
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm

from .conftest import DEADLINE, RUN, Peer, Play, Village

LARGE = Layout.of([("a", (64, 1536)), ("b", (8, 1024)), ("c", (16,))], 1024)
STEPPING = Stepping(reduced_codec_of(RUN.codec), RUN.outer)
SECONDS = 2.0
"""What a fetch gets that must fail."""

seeds = itertools.count(1000)


def random_state(step: int = 7, layout: Layout = LARGE) -> OuterState:
    generator = torch.Generator().manual_seed(next(seeds))
    theta, momentum = (torch.randn(layout.numel, generator=generator) for _ in range(2))
    return OuterState(theta, momentum, step, layout)


def altered(state: OuterState, leaves: Sequence[int]) -> OuterState:
    """A copy in which these leaves differ in their last element by one unit in the last place."""
    copy = state.clone()
    for leaf in leaves:
        data = bytearray(copy.leaf(leaf))
        data[-4] ^= 1
        copy.set_leaf(leaf, bytes(data))
    return copy


def total(state: OuterState) -> int:
    """Bytes of a whole state."""
    return sum(state.leaf_size(i) for i in range(state.num_leaves))


def held_by(peers: Sequence[Peer], state: OuterState, step: int | None = None) -> Majority:
    """These peers hold `state` and offer it."""
    for peer in peers:
        peer.swarm.store.add(state.root(), state)
    return Majority(
        state.step if step is None else step, state.root(), tuple(sorted(p.hotkey for p in peers)), len(peers)
    )


def never(hotkey: str, reason: object) -> None:
    raise AssertionError(f"dropped something of {hotkey}: {reason}")


async def fetch_state(
    swarm: Swarm, target: Majority, mine: OuterState, seconds: float, progress: Callable[[int, int], None]
) -> tuple[OuterState, int, int]:
    fetch = StateFetch(swarm, STEPPING, target, Unfinished.of(mine), progress)
    return await fetch.run(seconds), fetch.leaves, fetch.received


async def repaired(peer: Peer, target: Majority, mine: OuterState, seconds: float = DEADLINE) -> tuple[OuterState, int]:
    """The state after repair, and the payload bytes this peer received for it."""
    before = sum(peer.swarm.traffic.down.values())
    state, _, received = await fetch_state(peer.swarm, target, mine, seconds, lambda *_: None)
    down = sum(peer.swarm.traffic.down.values()) - before
    assert down == received + HASH_BYTES * mine.num_leaves
    return state, down


@pytest.mark.parametrize("leaves", [[0], [3, 4, 5, 41], [LARGE.num_leaves, 2 * LARGE.num_leaves - 1]])
def test_a_drifted_peer_fetches_only_the_leaves_that_differ(village: Village, leaves: list[int]) -> None:
    async def act() -> None:
        drifted, *others = await village.assemble(4)
        good = random_state()
        target = held_by(others, good)
        bad = altered(good, leaves)
        told: list[tuple[int, int]] = []
        before = sum(drifted.swarm.traffic.down.values())
        state, fetched, received = await fetch_state(
            drifted.swarm, target, bad, DEADLINE, lambda done, of: told.append((done, of))
        )
        down = sum(drifted.swarm.traffic.down.values()) - before
        assert state.digest() == good.digest() == target.digest
        assert torch.equal(state.theta, good.theta) and torch.equal(state.momentum, good.momentum)
        assert fetched == len(leaves) and received == sum(good.leaf_size(i) for i in leaves)
        assert down == received + HASH_BYTES * good.num_leaves < total(good) / 10
        assert told[-1] == (len(leaves), len(leaves))
        assert bad.digest() == altered(good, leaves).digest()  # not replaced in place

    village.run(act())


def test_a_joiner_from_genesis_gets_the_whole_state_for_little_more_than_its_size(village: Village) -> None:
    async def act() -> None:
        joiner, *holders = await village.assemble(4)
        good = random_state(step=40)
        genesis = OuterState(random_state().theta, torch.zeros(LARGE.numel), 0, LARGE)
        state, down = await repaired(joiner, held_by(holders, good), genesis)
        assert state.digest() == good.digest() and state.step == 40
        assert total(good) < down <= 1.05 * total(good)
        # Several holders share the work.
        assert good.num_leaves > 2 * RUN_LEAVES
        assert sum(h.swarm.traffic.up[joiner.hotkey] > 0 for h in holders) >= 2

    village.run(act())


def test_a_state_that_differs_only_in_its_step_costs_only_the_hashes(village: Village) -> None:
    async def act() -> None:
        behind, holder = await village.assemble(2)
        good = random_state(step=8)
        mine = OuterState(good.theta, good.momentum, 7, LARGE)
        state, down = await repaired(behind, held_by([holder], good), mine)
        assert state.digest() == good.digest() and down == HASH_BYTES * good.num_leaves

    village.run(act())


def test_a_holder_that_vanishes_costs_time_but_not_the_state(village: Village) -> None:
    async def act() -> None:
        joiner, *holders = await village.assemble(4)
        good = random_state()
        target = held_by(holders, good)
        first = next(h for h in holders if h.hotkey == target.holders[0])
        await village.end(first)
        state, down = await repaired(joiner, target, random_state())
        assert state.digest() == good.digest()
        assert down <= 1.05 * total(good)

    village.run(act())


class Liar(OuterState):
    """Shows the true hashes and hands out other leaves."""

    def leaf(self, index: int) -> bytes:
        data = bytearray(super().leaf(index))
        data[0] ^= 1
        return bytes(data)


def test_a_holder_that_lies_is_passed_over(village: Village) -> None:
    async def act() -> None:
        joiner, *holders = await village.assemble(4)
        good = random_state()
        target = held_by(holders[1:], good)
        lie = Liar(good.theta, good.momentum, good.step, LARGE)
        held_by(holders[:1], lie)
        target = Majority(target.step, target.root, tuple(sorted(h.hotkey for h in holders)), 3)
        state, down = await repaired_despite_lies(joiner, target, random_state())
        assert state.digest() == good.digest()
        # At most one bad leaf was read for each run of leaves asked of the liar.
        runs = -(-good.num_leaves // RUN_LEAVES)
        assert down <= 1.05 * total(good) + runs * 4 * LARGE.leaf_size

    village.run(act())


async def repaired_despite_lies(peer: Peer, target: Majority, mine: OuterState) -> tuple[OuterState, int]:
    before = sum(peer.swarm.traffic.down.values())
    state, _, _ = await fetch_state(peer.swarm, target, mine, DEADLINE, lambda *_: None)
    return state, sum(peer.swarm.traffic.down.values()) - before


def test_nothing_is_replaced_when_no_holder_delivers(village: Village) -> None:
    async def act() -> None:
        mine_peer, other = await village.assemble(2)
        mine, good = random_state(), random_state()
        digest = mine.digest()
        nowhere = Majority(good.step, good.root(), (other.hotkey,), 1)
        with pytest.raises(FetchError, match="unknown root"):
            await fetch_state(mine_peer.swarm, nowhere, mine, SECONDS, lambda *_: None)
        alone = Majority(good.step, good.root(), (mine_peer.hotkey,), 1)
        with pytest.raises(FetchError, match="nobody else"):
            await fetch_state(mine_peer.swarm, alone, mine, SECONDS, lambda *_: None)
        only_lies = held_by([other], Liar(good.theta, good.momentum, good.step, LARGE))
        with pytest.raises(FetchError, match="does not match its hash"):
            await fetch_state(mine_peer.swarm, only_lies, mine, SECONDS, lambda *_: None)
        assert mine.digest() == digest

    village.run(act())


def test_a_majority_state_with_a_value_that_is_not_finite_is_refused(village: Village) -> None:
    async def act() -> None:
        peer, other = await village.assemble(2)
        mine = random_state()
        poisoned = random_state()
        poisoned.theta[5] = float("nan")

        class Raw(OuterState):
            def leaf(self, index: int) -> bytes:
                return self._values(index).numpy().tobytes()

        target = held_by([other], Raw(poisoned.theta, poisoned.momentum, 7, LARGE))
        with pytest.raises(FetchError, match="not finite"):
            await fetch_state(peer.swarm, target, mine, SECONDS, lambda *_: None)

    village.run(act())


# From claims to one state ---------------------------------------------------------------------------------------------


async def claim(play: Play, states: Sequence[OuterState]) -> None:
    for peer, state in zip(play.peers, states, strict=True):
        peer.swarm.store.add(state.root(), state)
        await publish_claim(peer.swarm, play.window.round, state)


async def decided(play: Play, peer: Peer) -> Majority | None:
    expected = {p.hotkey for p in play.peers}
    claims = await await_claims(peer.swarm, play.clock, play.window, expected, never)  # type: ignore[arg-type]
    return majority(claims, {})


def test_peers_that_ended_a_round_differently_all_end_with_the_majoritys_state(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        good = random_state()
        states = [good, good, altered(good, [1]), altered(good, [2, 60])]
        await claim(play, states)
        found = await asyncio.gather(*(decided(play, p) for p in play.peers))
        assert play.clock.block() < play.window.end - 1  # all have spoken: nobody waits for the deadline
        assert {m.digest for m in found} == {good.digest()}
        assert {m.holders for m in found} == {tuple(sorted(p.hotkey for p in play.peers[:2]))}
        for peer, mine, target in zip(play.peers[2:], states[2:], found[2:], strict=True):
            state, _ = await repaired(peer, target, mine)
            await publish_claim(peer.swarm, play.window.round, state)
        while True:
            claims = await claims_of(play.peers[0].swarm, play.window.round, never)
            if {c.digest for c in claims} == {good.digest()} and len(claims) == 4:
                break
            await asyncio.sleep(0.05)

    village.run(act())


def test_who_says_nothing_is_waited_for_until_the_rounds_last_block_and_no_longer(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(4)
        good = random_state()
        silent = play.peers[3]
        for peer in play.others(silent):
            await publish_claim(peer.swarm, play.window.round, good)
        await play.all_see("digest", {p.hotkey for p in play.others(silent)})
        waiting = [asyncio.ensure_future(decided(play, p)) for p in play.peers]
        play.clock.move_to(play.window.end - 1.01)
        assert not (await asyncio.wait(waiting, timeout=0.5))[0]
        play.clock.move_to(play.window.end - 1)
        found = await asyncio.gather(*waiting)
        assert {(m.digest, m.claims) for m in found} == {(good.digest(), 3)}

    village.run(act())


def test_malformed_claims_are_dropped_and_do_not_count(village: Village) -> None:
    async def act() -> None:
        play = await village.open_round(2)
        liar, honest = play.peers
        dropped: list[tuple[str, str]] = []
        await liar.swarm.publish("digest", play.window.round, claim_body(-1, b"r" * 32))
        await play.all_see("digest", {liar.hotkey})
        await publish_claim(honest.swarm, play.window.round, random_state())
        drop = lambda hotkey, why: dropped.append((hotkey, str(why)))  # noqa: E731
        claims = await claims_of(honest.swarm, play.window.round, drop)
        assert [c.hotkey for c in claims] == [honest.hotkey]
        assert dropped == [(liar.hotkey, "digest of an impossible step")]
        assert majority(claims, {}) == Majority(7, claims[0].root, (honest.hotkey,), 1)
        assert isinstance(claims[0], Claim)

    village.run(act())
