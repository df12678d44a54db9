"""Block time: the chain's height as a smooth number that never runs backwards and goes on when the RPC is gone.

`Extrapolation` is the pure rule; `BlockClock` adds waiting and block hashes. Neither talks to the chain: whoever
follows it calls `observe` with each new height.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable

from subnet.chain.errors import ChainUnreachable

__all__ = ["BlockClock", "ChainUnreachable", "Extrapolation"]

# The block time is that of the last so many blocks: heads that were held up arrive in a burst, and only over a long
# span do the gap before it and the burst itself weigh as much as they should.
_SPAN = 64
_SHORTEST_SPAN = 16
# The observed block time counts as at most this factor away from the first estimate.
_OUTLIER = 2.0
# Speed, against the chain's, while waiting for the chain to catch up with a clock that ran ahead of it.
_CATCH_UP = 0.5
# Seconds, beyond two blocks, that `hash_of` gives the RPC.
_HASH_PATIENCE = 3.0
_LONGEST_SLEEP = 1.0


class Extrapolation:
    """The height at any time, from the heights seen so far.

    Between heads it advances by the block time, which follows the chain's slowly. A head that lies ahead is adopted at
    once; after one that lies behind, the clock goes at half speed until the chain has caught up with it.
    """

    def __init__(self, number: int, now: float, block_time: float) -> None:
        """number: height seen at `now` (seconds of any monotonic clock); block_time: seconds, > 0."""
        if block_time <= 0:
            raise ValueError(f"block time must be positive, got {block_time}")
        self.head = number
        """The highest block seen."""
        self.block_time = block_time
        self._slowest, self._fastest = block_time * _OUTLIER, block_time / _OUTLIER
        self._seen_at = now
        self._seen: deque[tuple[int, float]] = deque([(number, now)], maxlen=_SPAN)
        self._floor, self._floor_at = float(number), now

    def observe(self, number: int, now: float) -> None:
        """A block was seen. Heights at or below the highest seen so far (a re-organised or late head) are ignored."""
        if number <= self.head:
            return
        self._floor, self._floor_at = self.at(now), now
        if now - self._seen_at > _SPAN * self.block_time:
            self._seen.clear()  # the chain, or the way to it, was gone: that says nothing of its pace
        self.head, self._seen_at = number, now
        self._seen.append((number, now))
        first, since = self._seen[0]
        if number - first >= _SHORTEST_SPAN:
            self.block_time = min(max((now - since) / (number - first), self._fastest), self._slowest)

    def at(self, now: float) -> float:
        """The height at `now`, never less than at any earlier time."""
        followed = self.head + (now - self._seen_at) / self.block_time
        held = self._floor + _CATCH_UP * (now - self._floor_at) / self.block_time
        return max(followed, held)

    def time_of(self, block: float, now: float) -> float:
        """Seconds from `now` until `at` reaches `block`; 0 if it has, and inexact only if heads come in between."""
        if block <= self.at(now):
            return 0.0
        followed = self._seen_at + (block - self.head) * self.block_time
        held = self._floor_at + (block - self._floor) * self.block_time / _CATCH_UP
        return max(min(followed, held) - now, 0.0)


class BlockClock:
    """The time of a neuron, in blocks.

    block_hash: how to ask the chain for a block's hash; raises ChainUnreachable, returns None for a block it does not
    have yet. monotonic, sleep: seconds, injected for tests.
    """

    def __init__(
        self,
        number: int,
        block_time: float,
        block_hash: Callable[[int], Awaitable[bytes | None]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._block_hash = block_hash
        self._height = Extrapolation(number, monotonic(), block_time)

    @property
    def block_time(self) -> float:
        """Seconds per block, as observed lately."""
        return self._height.block_time

    def observe(self, number: int) -> None:
        """Follow the chain: block `number` has just been seen."""
        self._height.observe(number, self._monotonic())

    def block(self) -> float:
        """The height now: its whole part a block number, the rest how far the next block is due. Never decreases."""
        return self._height.at(self._monotonic())

    def seconds_until(self, block: float) -> float:
        """Seconds until `block`, 0 if it has passed."""
        return self._height.time_of(block, self._monotonic())

    async def wait_until(self, block: float) -> None:
        """Return once `block()` has reached `block`. Always ends, chain or no chain."""
        while (seconds := self.seconds_until(block)) > 0:
            await self._sleep(min(seconds, _LONGEST_SLEEP))

    async def hash_of(self, block: int, timeout: float | None = None) -> bytes:
        """The 32-byte hash of `block`, waiting for the block if it is due.

        timeout: seconds; by default until two blocks after it is due, and a little for the RPC. The hash is the best
        chain's: a block of the last seconds may still be replaced by a sibling.

        Raises ChainUnreachable if there is no answer by then.
        """
        if timeout is None:
            timeout = self.seconds_until(block) + 2 * self.block_time + _HASH_PATIENCE
        deadline = self._monotonic() + timeout
        reason = f"block {block} did not appear in {timeout:.0f} s"
        while True:
            # Ask only for a block that must exist by now: public endpoints count every request.
            if self.block() >= block:
                try:
                    found = await self._block_hash(block)
                except ChainUnreachable as error:
                    reason = str(error)
                else:
                    if found is not None:
                        return found
            left = deadline - self._monotonic()
            if left <= 0:
                raise ChainUnreachable(f"no hash of block {block}: {reason}")
            pause = max(self.seconds_until(block), self.block_time * random.uniform(0.2, 0.5))
            await self._sleep(min(pause, left))
