"""Peers whose links differ: the sizes of their parts, and one that nobody can dial."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from typing import Any

from hivemind.p2p import PeerID
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.layout import Layout
from subnet.diloco.merkle import owned
from subnet.exchange.commitment import Commitment
from subnet.exchange.roster import SPREAD, Roster, shares
from subnet.swarm import blobs
from subnet.swarm.network import Swarm
from subnet.swarm.wire import WireError

from .conftest import LAYOUT, PATIENCE, Village, until

EVEN = Layout.of([("w", (8 * 4096,))], 64)
"""512 leaves of 64 elements."""


def roster_of(rates: list[int]) -> Roster:
    commitments = tuple(
        Commitment(f"h{i}", bytes([i]) * 32, 1.0, 100, 2, b"s" * 32, rate) for i, rate in enumerate(rates)
    )
    return Roster(3, "h0", b"r" * 32, b"s" * 32, commitments, len(commitments))


def sizes(rates: list[int]) -> list[int]:
    return [stop - start for start, stop in roster_of(rates).parts(EVEN)]


def test_parts_are_as_the_rates_up_to_a_spread() -> None:
    assert sizes([1024, 1024, 2048, 4096]) == [64, 64, 128, 256]
    assert sizes([1024, 1024, 1024, 2**24]) == [74, 73, 73, 292]
    assert sizes([2, 1024, 1024, 1024]) == [40, 157, 158, 157]
    assert sizes([1] * 4) == sizes([2**24] * 4) == [128] * 4


def test_unknown_rates_count_as_the_median() -> None:
    assert shares([1, 256, 1024, 4096, 1]) == [4096, 1024, 4096, 16384, 4096]
    assert shares([1, 1, 1, 64]) == [256] * 4
    assert shares([0, 0, 0]) == [4] * 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**24), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_an_order_decides_where_parts_lie_and_not_how_large_they_are(rates: list[int], random: Random) -> None:
    order = random.sample(range(len(rates)), len(rates))
    assert shares([rates[i] for i in order]) == [shares(rates)[i] for i in order]
    told = [max(1, rate) for rate in rates]
    before, after = sizes(told), sizes([told[i] for i in order])
    assert all(abs(after[at] - before[i]) <= len(rates) for at, i in enumerate(order))


def test_who_cannot_be_dialled_reduces_nothing_unless_nobody_can() -> None:
    roster = roster_of([0, 1024, 0, 1024])
    assert [c.hotkey for c in roster.reducing] == ["h1", "h3"]
    assert [c.hotkey for c in roster.mean] == ["h0", "h1", "h2", "h3"]
    assert len(roster.parts(EVEN)) == 2
    assert roster.reducers(0) == ["h1"] and roster.reducers(1, 2) == ["h3", "h1"]
    assert sizes([0, 0]) == [256, 256]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**24), min_size=1, max_size=40), st.data())
def test_everything_is_reduced_once_and_no_lie_about_a_rate_gains_much(rates: list[int], data: st.DataObject) -> None:
    roster = roster_of(rates)
    parts = roster.parts(EVEN)
    assert len(parts) == len(roster.reducing)
    assert parts[0][0] == 0 and parts[-1][1] == EVEN.num_leaves and all(a[1] == b[0] for a, b in pairwise(parts))
    each = EVEN.num_leaves / len(parts)
    liar = data.draw(st.integers(0, len(rates) - 1))
    told = [2**24 if i == liar else max(1, rate) for i, rate in enumerate([1024] * len(rates))]
    assert sizes(told)[liar] <= SPREAD * each + 1
    told[liar] = 2
    assert sizes(told)[liar] >= EVEN.num_leaves // (SPREAD * len(rates)) - 1


async def fail_to_dial(swarm: Swarm, peer_id: str) -> None:
    """Cut the connection to that peer and see that it cannot be opened from here; the peer may be quick to open it."""
    for _ in range(10):
        await swarm._dialer.p2p._client.disconnect(PeerID.from_base58(peer_id))
        try:
            _, writer = await swarm._dialer.open(peer_id, [], blobs.PROTOCOL, PATIENCE)
        except WireError:
            return
        writer.close()
    raise AssertionError("it can be dialled")


def test_a_peer_that_nobody_can_dial_is_averaged_and_reduces_nothing(village: Village) -> None:
    async def act() -> None:
        await village.assemble(4)
        await village.hide(3)
        try:
            play = await village.open_round(4)
            hidden = play.peers[3]
            assert not hidden.swarm.maddrs and hidden.swarm.rate == 0
            seen = [lambda p=p: p.swarm.peers.get(hidden.hotkey) for p in play.others(hidden)]
            await until(lambda: all((peer := see()) is not None and not peer.maddrs for see in seen))
            await play.commit()
            for peer in play.others(hidden):  # as connections break: only the hidden peer can open them again
                await fail_to_dial(peer.swarm, hidden.swarm.peer_id)
            others = {p.swarm.peer_id for p in play.others(hidden)}
            while not others <= await hidden.swarm._dialer.connected(PATIENCE):
                await hidden.swarm.be_reachable(PATIENCE)
            rosters = await play.agree()
            assert len({r.root for r in rosters}) == 1 and len(rosters) == 4
            assert hidden.hotkey not in {c.hotkey for c in rosters[0].reducing}
            assert len(rosters[0].parts(LAYOUT)) == 3
            reduced = await asyncio.gather(*(play.reducing(p, rosters[0]) for p in play.peers))
            assert reduced[3] is None and all(r is not None and all(r.included) for r in reduced[:3])
            updates = await play.gather(play.peers, rosters[0], reduced)
            assert all(not u.missing and u.delta.equal(play.expected(u)) for u in updates)
        finally:
            await village.end(village.running[3])

    village.run(act())


def test_a_straggler_is_cut_at_the_deadline_and_costs_nobody_else(village: Village) -> None:
    """It is there, answers everything else, and gives its contribution so slowly that it never comes."""

    async def act() -> None:
        play = await village.open_round(4)
        await play.commit()
        slow = play.peers[1]
        rosters = await play.agree()
        assert len({r.root for r in rosters}) == 1 and len(rosters) == 4
        held, service = asyncio.Event(), slow.swarm._service
        plain, root = service._send_bytes, owned(play.contributions[slow.hotkey].root, slow.hotkey)
        assert slow.swarm.store.entry(root) is not None

        async def late(*arguments: Any) -> None:
            await held.wait()
            await plain(*arguments)

        service._send_bytes = late  # type: ignore[method-assign]
        village.clock.patience = PATIENCE
        try:
            reduced = await asyncio.gather(*(play.reducing(p, rosters[0]) for p in play.peers))
        finally:
            held.set()
            service._send_bytes = plain  # type: ignore[method-assign]
        others = {p.hotkey for p in play.others(slow)}
        updates = await play.gather(play.peers, rosters[0], reduced)
        for update in updates:
            assert not update.missing and update.delta.equal(play.expected(update))
            for result in update.results.values():  # it has its own contribution, and averages it in its own part
                assert result.included == others | ({slow.hotkey} if result.reducer == slow.hotkey else set())

    village.run(act())
