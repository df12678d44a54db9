"""Catching up by replay or by fetching, whichever is less, and going on where an attempt ended: real peers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subnet.diloco.codec import decode_part, encode_part, reduced_codec_of
from subnet.diloco.layout import Layout
from subnet.diloco.outer import outer_step
from subnet.diloco.state import OuterState
from subnet.exchange.fetch import RUN_LEAVES, StateFetch, Stepping, runs_of
from subnet.exchange.history import History
from subnet.exchange.majority import Claim, Majority, majority
from subnet.exchange.unfinished import Unfinished
from subnet.swarm.blobs import FetchError

from .conftest import DEADLINE, RUN, Peer, Village, until

LARGE = Layout.of([("a", (64, 1536)), ("b", (8, 1024)), ("c", (16,))], 1024)
STEPPING = Stepping(reduced_codec_of(RUN.codec), RUN.outer)
seeds = itertools.count(9000)
TOTAL = 8 * LARGE.numel


def random_vector() -> torch.Tensor:
    return torch.randn(LARGE.numel, generator=torch.Generator().manual_seed(next(seeds)))


def stepped(state: OuterState, missing: Sequence[int] = ()) -> tuple[OuterState, list[bytes]]:
    """One outer step on, and the update it took; of the leaves `missing` nothing came."""
    update = encode_part(STEPPING.reduced, LARGE, random_vector() * 1e-2, 0, LARGE.num_leaves)
    delta = decode_part(STEPPING.reduced, LARGE, update, 0, LARGE.num_leaves)
    for leaf in missing:
        update[leaf] = b""
        delta[slice(*LARGE.leaves[leaf])] = 0.0
    outer = STEPPING.outer
    theta, momentum = outer_step(state.theta, state.momentum, delta, outer.lr, outer.momentum, outer.nesterov)
    return OuterState(theta, momentum, state.step + 1, LARGE), update


def held(peers: Sequence[Peer], state: OuterState, updates: Sequence[Sequence[bytes]], home: Path) -> Majority:
    """These peers hold `state`, and the updates that led to it, the first one first."""
    claims = []
    for peer in peers:
        peer.swarm.store.add(state.root(), state)
        history = History(home / peer.hotkey / str(state.step), peer.swarm.store)
        for step, update in enumerate(updates, state.step - len(updates) + 1):
            history.add(step, update)
        claims.append(Claim(peer.hotkey, state.step, state.root(), history.roots))
    found = majority(claims, {})
    assert found is not None and len(found.updates) == len(updates)
    return found


def fetch_of(peer: Peer, target: Majority, work: Unfinished) -> StateFetch:
    return StateFetch(peer.swarm, STEPPING, target, work, lambda *_: None)


@pytest.mark.parametrize("behind", [1, 3])
def test_a_peer_that_was_down_replays_the_updates_since(village: Village, tmp_path: Path, behind: int) -> None:
    async def act() -> None:
        late, *others = await village.assemble(4)
        old = now = OuterState(random_vector(), random_vector(), 7, LARGE)
        updates = []
        for round_ in range(behind):
            now, update = stepped(now, missing=range(4 * round_, 4 * round_ + 3))
            updates.append(update)
        target = held(others, now, updates, tmp_path)
        fetch = fetch_of(late, target, Unfinished.of(old))
        state = await fetch.run(DEADLINE)
        assert state.digest() == now.digest() == target.digest and state.step == 7 + behind
        sent = sum(len(leaf) for update in updates for leaf in update)
        assert sent - TOTAL / 1000 < fetch.received <= sent < behind * TOTAL / 7  # leaves of two elements are fetched

    village.run(act())


def test_what_would_cost_more_to_replay_is_fetched(village: Village, tmp_path: Path) -> None:
    async def act() -> None:
        late, *others = await village.assemble(3)
        old = now = OuterState(random_vector(), random_vector(), 7, LARGE)
        updates = []
        for _ in range(8):
            now, update = stepped(now)
            updates.append(update)
        fetch = fetch_of(late, held(others, now, updates, tmp_path), Unfinished.of(old))
        assert (await fetch.run(DEADLINE)).digest() == now.digest()
        assert fetch.received == TOTAL

    village.run(act())


def test_a_wrong_update_costs_only_its_bytes(village: Village, tmp_path: Path) -> None:
    """What does not come out right, for a wrong update or a wrong leaf of one's own, is fetched."""

    async def act() -> None:
        late, *others = await village.assemble(3)
        old = OuterState(random_vector(), random_vector(), 7, LARGE)
        now, update = stepped(old)
        wrong = [*update[:10], *stepped(old)[1][10:12], b"junk", *update[13:]]
        spoilt = old.clone()
        spoilt.theta[LARGE.leaves[20][0]] += 1.0
        fetch = fetch_of(late, held(others, now, [wrong], tmp_path), Unfinished.of(spoilt))
        assert (await fetch.run(DEADLINE)).digest() == now.digest()
        assert fetch.received < sum(map(len, wrong)) + TOTAL

    village.run(act())


def test_an_attempt_that_failed_is_gone_on_with_also_a_round_later(village: Village, tmp_path: Path) -> None:
    async def act() -> None:
        joiner, *others = await village.assemble(3)
        genesis = OuterState(torch.zeros(LARGE.numel), torch.zeros(LARGE.numel), 0, LARGE)
        then = OuterState(random_vector(), random_vector(), 7, LARGE)
        target = held(others, then, [], tmp_path)
        work = Unfinished.of(genesis)
        first = fetch_of(joiner, target, work)
        fetched = first._fetch

        async def broken(number: int, start: int, stop: int) -> None:
            if number % 2:
                await until(lambda: first.leaves == 2 * RUN_LEAVES)
                raise FetchError("the line is cut")
            await fetched(number, start, stop)

        first._fetch = broken  # type: ignore[method-assign]
        with pytest.raises(FetchError, match="the line is cut"):
            await first.run(DEADLINE)
        work.save(tmp_path / "work")
        again = Unfinished.load(tmp_path / "work", LARGE)
        assert again is not None
        same = fetch_of(joiner, target, again)
        assert (await same.run(DEADLINE)).digest() == then.digest()
        assert same.received == TOTAL - first.received
        # The others have gone on: what came is a step behind now, and is taken there.
        now, update = stepped(then)
        work = Unfinished.load(tmp_path / "work", LARGE) or work
        both = sum(work.step_of(leaf) == 7 for leaf in range(LARGE.num_leaves))
        assert both > RUN_LEAVES / 2
        later = fetch_of(joiner, held(others, now, [update], tmp_path), work)
        assert (await later.run(DEADLINE)).digest() == now.digest()
        assert later.received < TOTAL - 6 * 1000 * both

    village.run(act())


@given(st.sets(st.integers(0, 200)), st.integers(1, 16))
def test_runs_cover_exactly_the_leaves_that_are_wanted(wanted: set[int], longest: int) -> None:
    runs = runs_of(sorted(wanted), longest)
    assert [i for start, stop in runs for i in range(start, stop)] == sorted(wanted)
    assert all(0 < stop - start <= longest for start, stop in runs)
