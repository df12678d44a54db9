"""Saying which state one holds, hearing what others hold, and fetching the leaves in which this peer differs.

A peer joining, a peer that was down and a peer that drifted are one case: their leaves differ, and what they fetch is
checked against the signed majority digest whoever it came from. Which one to fetch is `agreement`'s to decide.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from subnet.chain.clock import BlockClock
from subnet.diloco.codec import CodecError
from subnet.diloco.merkle import HASH_BYTES
from subnet.diloco.state import OuterState
from subnet.exchange.majority import Claim, Majority, claim_body, differing_runs, open_claim
from subnet.exchange.round import POLL_SECONDS
from subnet.exchange.window import Window
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm
from subnet.swarm.records import BadRecord
from subnet.waiting import end

# Leaves asked of one source at a time: long enough to amortise a request, short enough to spread over sources.
RUN_LEAVES = 64
PARALLEL_RUNS = 4
PATIENCE_SECONDS = 20.0
SLOWEST_BYTES = 50e3
"""Bytes a second. Holders that together do not deliver a run at this pace, after PATIENCE_SECONDS, do not deliver."""


@dataclass(frozen=True)
class Agreement:
    """How a round ended: the majority (None if nobody else spoke in time) and what repairing took."""

    majority: Majority | None
    agreed: bool
    repaired_leaves: int = 0
    repaired_bytes: int = 0


async def claims_of(swarm: Swarm, round_index: int, drop: Callable[[str, Exception], None]) -> list[Claim]:
    """The well-formed digest claims of a round that have reached this peer."""
    claims = []
    for record in await swarm.records("digest", round_index):
        try:
            claims.append(open_claim(record))
        except BadRecord as error:
            drop(record.hotkey, error)
    return claims


async def publish_claim(swarm: Swarm, round_index: int, state: OuterState) -> None:
    """Sign and publish which state this peer holds after a round."""
    await swarm.publish("digest", round_index, claim_body(state.step, state.root()))


async def await_claims(
    swarm: Swarm, clock: BlockClock, window: Window, expected: set[str], drop: Callable[[str, Exception], None]
) -> list[Claim]:
    """The claims of `window.round`: once all `expected` hotkeys spoke, or at the round's last block."""
    while True:
        claims = await claims_of(swarm, window.round, drop)
        if expected <= {c.hotkey for c in claims} or clock.block() >= window.end - 1:
            return claims
        await asyncio.sleep(POLL_SECONDS)


async def fetch_state(
    swarm: Swarm,
    target: Majority,
    mine: OuterState,
    timeout: float,
    progress: Callable[[int, int], None],
) -> tuple[OuterState, int, int]:
    """The majority's state, built from `mine` and the leaves that differ; also how many leaves and bytes that took.

    Several holders serve different runs at once and each run moves on to the next holder when one fails or is slow.

    Raises:
        FetchError: the holders did not deliver in `timeout` seconds, did not keep up the least pace, or what they hold
            is not what was signed.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    num_leaves = mine.num_leaves
    holders = [h for h in target.holders if h != swarm.hotkey]
    if not holders:
        raise FetchError("nobody else holds the majority state")
    patience = _patience(num_leaves * HASH_BYTES)
    theirs = await swarm.fetch_hashes(holders, target.root, num_leaves, timeout=min(timeout, patience))
    runs = differing_runs(mine.leaf_hashes(), theirs, RUN_LEAVES)
    state = mine.clone()
    state.step = target.step
    total, done = sum(stop - start for start, stop in runs), 0
    received = 0
    slots = asyncio.Semaphore(PARALLEL_RUNS)

    async def fetch(number: int, start: int, stop: int) -> None:
        nonlocal done, received
        first = number % len(holders)
        sources = list(itertools.islice(itertools.cycle(holders), first, first + len(holders)))
        patience = _patience(sum(map(state.leaf_size, range(start, stop))))
        async with slots:
            limit = min(deadline - loop.time(), patience)
            leaves = await swarm.fetch_leaves(
                sources, target.root, num_leaves, start, stop, state.leaf_size, timeout=limit
            )
        try:
            for index, leaf in enumerate(leaves, start):
                state.set_leaf(index, leaf)
        except CodecError as error:
            raise FetchError(f"the state that was signed is none: {error}") from error
        done += stop - start
        received += sum(map(len, leaves))
        progress(done, total)

    tasks = [asyncio.create_task(fetch(number, *run)) for number, run in enumerate(runs)]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end(tasks)
    if state.digest() != target.digest:
        raise FetchError("the assembled state does not match the signed digest")
    return state, total, received


def _patience(num_bytes: int) -> float:
    """Seconds within which so many bytes come, from anybody who means to deliver."""
    return PATIENCE_SECONDS + num_bytes / SLOWEST_BYTES
