"""This peer's consensus state, kept the one that most hold: after every round, and before the first one.

It decides by the signed claims (`majority`), fetches by hash (`repair`) and remembers who did not deliver. The outer
step itself is the neuron's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from subnet.chain.clock import BlockClock
from subnet.config import RoundConfig
from subnet.diloco.state import OuterState
from subnet.exchange.majority import Claim, Majority, Standing, Undelivered, majority
from subnet.exchange.repair import Agreement, await_claims, claims_of, fetch_state, publish_claim
from subnet.exchange.window import Window
from subnet.progress import Progress, size
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm

log = logging.getLogger(__name__)

Drop = Callable[[Window, str, Exception], None]
"""`drop(window, hotkey, error)`: count what a peer sent that was refused."""


class Consensus:
    """Holds `state`, which is replaced whole and never changed in place, and offers it to others."""

    def __init__(self, swarm: Swarm, clock: BlockClock, rounds: RoundConfig, state: OuterState, drop: Drop) -> None:
        self.swarm = swarm
        self.clock = clock
        self.rounds = rounds
        self.state = state
        self.undelivered = Undelivered()
        self._drop = drop
        swarm.store.add(state.root(), state)

    @property
    def claim(self) -> Claim:
        """What this peer says, or would say, it holds."""
        return Claim(self.swarm.hotkey, self.state.step, self.state.root())

    def adopt(self, state: OuterState) -> None:
        """Go on from `state`, and offer it instead of the last one."""
        self.swarm.store.drop(self.state.root())
        self.state = state
        self.swarm.store.add(state.root(), state)

    async def settle(self, window: Window, standing: Mapping[str, Standing], expected: set[str]) -> Agreement:
        """At the end of a round: say what this peer holds, hear the `expected` others, repair if most hold another.

        A repair has until the next round's training is over.
        """
        await publish_claim(self.swarm, window.round, self.state)
        claims = await await_claims(self.swarm, self.clock, window, expected, partial(self._drop, window))
        others = [claim for claim in claims if claim.hotkey != self.swarm.hotkey]
        found = majority([*self._believable(others, window), self.claim], standing)
        return await self._follow(found, window, window.round, window.end + self.rounds.train_end)

    async def catch_up(self, window: Window, standing: Mapping[str, Standing]) -> Agreement:
        """Before a round: hold what the majority claimed at the end of the last one, as long as it is served.

        What that repairs is said of the last round: for this one it would count as a vote before it is played.
        """
        claims = await claims_of(self.swarm, window.round - 1, partial(self._drop, window))
        found = majority(self._believable(claims, window), standing, own=self.claim)
        return await self._follow(found, window, window.round - 1, window.gather_end)

    def _believable(self, claims: Iterable[Claim], window: Window) -> list[Claim]:
        claims = list(claims)
        kept = self.undelivered.believable(claims, window.round)
        if len(kept) < len(claims):
            ignored = ", ".join(sorted(claim.hotkey[:8] for claim in set(claims) - set(kept)))
            log.info("round %d: the states of %s are not asked for: they were not delivered", window.round, ignored)
        return kept

    async def _follow(self, found: Majority | None, window: Window, claimed: int, until: float) -> Agreement:
        """Repair unless `found`, of round `claimed`, is held; a state that cannot be had is left alone for a while."""
        if found is None or found.digest == self.state.digest():
            return Agreement(found, agreed=True)
        log.warning(
            "round %d: this state (step %d) differs from that of %d of %d peers (step %d): repairing",
            window.round, self.state.step, len(found.holders), found.claims, found.step,
        )  # fmt: skip
        seconds = self.clock.seconds_until(until)
        try:
            state, leaves, received = await fetch_state(self.swarm, found, self.state, seconds, Progress(_tell))
        except FetchError as error:
            log.warning("round %d: repair failed: %s", window.round, error)
            self.undelivered.failed(found, window.round)
            return Agreement(found, agreed=False)
        self.undelivered.delivered(found)
        self.adopt(state)
        await publish_claim(self.swarm, claimed, state)
        log.info("repaired to outer step %d: %d leaves, %s", state.step, leaves, size(received))
        return Agreement(found, agreed=False, repaired_leaves=leaves, repaired_bytes=received)


def _tell(done: int, total: int) -> None:
    log.info("state: %d of %d leaves", done, total)
