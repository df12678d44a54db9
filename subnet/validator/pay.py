"""When a validator's weights are set: once a tempo, and again and again after a failure until the chain takes them.

Not what they are (`subnet.scoring.weights`): they are taken from the score table anew at each attempt, so that what
could not be set for hours is sent as it then is, to the uids that the hotkeys then have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from subnet.chain.client import WeightsOutcome

Weights = dict[int, float]


@dataclass(frozen=True)
class Attempt:
    """What was sent, and what became of it."""

    weights: Weights
    outcome: WeightsOutcome


class Paymaster:
    """`send` sets weights on chain; `block` tells the time; `wait_for` is False if this neuron stops before a block."""

    def __init__(
        self,
        send: Callable[[Weights], Awaitable[WeightsOutcome]],
        block: Callable[[], float],
        wait_for: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._send = send
        self._block = block
        self._wait_for = wait_for
        self.due = 0.0
        """Block from which on weights are to be set."""

    async def pay(self, weights: Callable[[], Weights], interval: float, until: float) -> Attempt | None:
        """Set what `weights` gives, if they are due before block `until`, and try again till then; the last attempt.

        Set, they are due again after `interval` blocks. What the chain refuses for another reason than coming too
        early is not tried again before `until`: unchanged, it would be refused again.
        """
        last: Attempt | None = None
        while self.due < until:
            if self.due > self._block() and not await self._wait_for(self.due):
                break
            due = weights()
            if not due:
                break
            last = Attempt(due, await self._send(due))
            outcome, now = last.outcome, self._block()
            if outcome.ok:
                self.due = now + interval
                break
            self.due = now + outcome.wait_blocks if outcome.wait_blocks else max(now, until)
        return last
