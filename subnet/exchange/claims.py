"""Saying which state one holds, and hearing what others hold.

Which of them to follow is `agreement`'s to decide, and `fetch` brings the leaves that differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from subnet.chain.clock import BlockClock
from subnet.diloco.state import OuterState
from subnet.exchange.majority import Claim, Majority, claim_body, open_claim
from subnet.exchange.round import POLL_SECONDS
from subnet.exchange.window import Window
from subnet.swarm.network import Swarm
from subnet.swarm.records import BadRecord


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


async def publish_claim(swarm: Swarm, round_index: int, state: OuterState, updates: Sequence[bytes] = ()) -> None:
    """Sign and publish which state this peer holds after a round, and which updates that led to it are kept here."""
    await swarm.publish("digest", round_index, claim_body(state.step, state.root(), updates))


async def await_claims(
    swarm: Swarm, clock: BlockClock, window: Window, expected: set[str], drop: Callable[[str, Exception], None]
) -> list[Claim]:
    """The claims of `window.round`: once all `expected` hotkeys spoke, or at the round's last block."""
    while True:
        claims = await claims_of(swarm, window.round, drop)
        if expected <= {c.hotkey for c in claims} or clock.block() >= window.end - 1:
            return claims
        await asyncio.sleep(POLL_SECONDS)
