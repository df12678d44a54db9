"""This peer's consensus state, kept the one that most hold: after every round, and before the first one.

It decides by the signed claims (`majority`), brings the leaves that differ (`fetch`), remembers who did not deliver,
and keeps its last updates for those who were down (`history`). The outer step itself is the neuron's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from subnet.chain.clock import BlockClock
from subnet.config import RoundConfig
from subnet.diloco.state import OuterState
from subnet.exchange.claims import Agreement, await_claims, claims_of, publish_claim
from subnet.exchange.fetch import StateFetch, Stepping
from subnet.exchange.history import History
from subnet.exchange.majority import Claim, Majority, Standing, Undelivered, majority
from subnet.exchange.unfinished import Unfinished
from subnet.exchange.window import Window
from subnet.progress import Progress, size
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm

log = logging.getLogger(__name__)

Drop = Callable[[Window, str, Exception], None]
"""`drop(window, hotkey, error)`: count what a peer sent that was refused."""


class Consensus:
    """Holds `state`, which is replaced whole and never changed in place, and offers it to others.

    In `home` it keeps updates, and what an attempt at a repair that failed has brought.
    """

    def __init__(
        self,
        swarm: Swarm,
        clock: BlockClock,
        rounds: RoundConfig,
        stepping: Stepping,
        home: Path,
        state: OuterState,
        drop: Drop,
    ) -> None:
        self.swarm = swarm
        self.clock = clock
        self.rounds = rounds
        self.stepping = stepping
        self.state = state
        self.history = History(home / "updates", swarm.store)
        self.undelivered = Undelivered()
        self._drop = drop
        self._unfinished = home / "unfinished.safetensors"
        swarm.store.add(state.root(), state)

    @property
    def claim(self) -> Claim:
        """What this peer says, or would say, it holds."""
        return Claim(self.swarm.hotkey, self.state.step, self.state.root())

    def step(self, state: OuterState, update: Sequence[bytes]) -> None:
        """Go on from `state`, one outer step on, and keep the update that led to it, by leaves of the layout."""
        self._adopt(state)
        try:
            self.history.add(state.step, update)
        except OSError as error:
            log.warning("the update to step %d cannot be kept for others: %s", state.step, error.strerror)

    def _adopt(self, state: OuterState) -> None:
        """Offer `state` instead of the last one."""
        self.swarm.store.drop(self.state.root())
        self.state = state
        self.swarm.store.add(state.root(), state)

    async def settle(self, window: Window, standing: Mapping[str, Standing], expected: set[str]) -> Agreement:
        """At the end of a round: say what this peer holds, hear the `expected` others, repair if most hold another.

        A repair has until the next round's training is over.
        """
        await publish_claim(self.swarm, window.round, self.state, self.history.roots)
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
        work = await asyncio.to_thread(self._resume)
        fetch = StateFetch(self.swarm, self.stepping, found, work, Progress(_tell))
        try:
            state = await fetch.run(self.clock.seconds_until(until))
        except FetchError as error:
            log.warning("round %d: repair failed: %s", window.round, error)
            if fetch.leaves:  # holders that deliver, only not all of it in time
                log.info("round %d: %d leaves, %s, are kept", window.round, fetch.leaves, size(fetch.received))
            else:
                self.undelivered.failed(found, window.round)
            return Agreement(found, agreed=False)
        finally:
            await asyncio.to_thread(self._keep, fetch)
        self.undelivered.delivered(found)
        self.history.clear()
        self._adopt(state)
        await publish_claim(self.swarm, claimed, state)
        log.info("repaired to outer step %d: %d leaves, %s", state.step, fetch.leaves, size(fetch.received))
        return Agreement(found, agreed=False, repaired_leaves=fetch.leaves, repaired_bytes=fetch.received)

    def _resume(self) -> Unfinished:
        """What the last attempt left, or this peer's state where that is later."""
        work = Unfinished.load(self._unfinished, self.state.layout)
        if work is None:
            return Unfinished.of(self.state)
        work.refresh(self.state)
        return work

    def _keep(self, fetch: StateFetch) -> None:
        """Keep what came, unless it is all."""
        try:
            if fetch.finished:
                self._unfinished.unlink(missing_ok=True)
            elif fetch.leaves:
                fetch.work.save(self._unfinished)
        except OSError as error:
            log.warning("what came of a state cannot be kept: %s", error.strerror)


def _tell(done: int, total: int) -> None:
    log.info("state: %d of %d leaves", done, total)
