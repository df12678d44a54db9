"""A miner's inner steps, round by round; with `delay` also while a round's exchange is still going on.

With overlap the steps of the next round begin as soon as this one's contribution is fixed, from the local parameters.
When the exchange has given the new outer parameters, what these steps changed is put on top of them: the averaged
update arrives late, as in eager and Streaming DiLoCo (arXiv 2502.12996, 2501.18512), and no core waits for a network.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from subnet.data.assignment import sample_ids
from subnet.diloco.inner import InnerResult, InnerTrainer
from subnet.errors import UserError
from subnet.exchange.round import Round
from subnet.model.build import build_model
from subnet.neuron import MAX_UIDS, Neuron


@dataclass
class _Ahead:
    """Steps of a round that are done before it begins: from which parameters, and how long they have taken."""

    round: int
    start: torch.Tensor
    task: asyncio.Task[InnerResult] | None = None
    seconds: float = 0.0
    halt: bool = False


class Training:
    """`trainer` holds the local parameters; `seconds` is what the last round's inner steps took, waiting excluded."""

    def __init__(self, neuron: Neuron) -> None:
        run = neuron.run
        self.neuron = neuron
        self.trainer = InnerTrainer(build_model(run.model, neuron.node.device), run.train, neuron.layout)
        self.seconds = 0.0
        self._ahead: _Ahead | None = None

    async def round(self, round_: Round) -> InnerResult:
        """Inner steps on this miner's assigned samples, until H of this round are done or its training phase ends."""
        neuron, train = self.neuron, self.neuron.run.train
        index = round_.window.round
        done = await self._take_over(index)
        attempted = done.steps + done.skipped

        def should_stop() -> bool:
            return neuron.stopping.is_set() or neuron.clock.block() >= round_.window.train_end

        started = time.monotonic()
        first = neuron.state.step * train.inner_steps + attempted
        batches = self._batches(index, attempted)
        rest = await neuron.compute(self.trainer.train, batches, train.inner_steps - attempted, first, should_stop)
        self.seconds += time.monotonic() - started
        return _together(done, rest)

    def begin_ahead(self, round_: Round) -> None:
        """Go on with the next round's steps from the local parameters, until `round` takes them over."""
        self._ahead = _Ahead(round_.window.round + 1, self.trainer.theta())
        self._ahead.task = asyncio.create_task(self._train_ahead(self._ahead))

    async def close(self) -> None:
        """End what is under way."""
        await self._halt()

    async def _halt(self) -> tuple[_Ahead, InnerResult] | None:
        """End the steps ahead, if there are any; they and their result."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.task is None:
            return None
        ahead.halt = True
        return ahead, await ahead.task

    async def _take_over(self, index: int) -> InnerResult:
        """Load the outer parameters, with what has been done ahead for round `index` on top; that result."""
        theta, self.seconds = self.neuron.state.theta, 0.0
        found = await self._halt()
        if found is None or found[0].round != index:  # the swarm is further on: those steps were another round's
            self.trainer.load(theta)
            return InnerResult()
        ahead, result = found
        self.trainer.load(theta + (self.trainer.theta() - ahead.start))
        self.seconds = ahead.seconds
        return result

    async def _train_ahead(self, ahead: _Ahead) -> InnerResult:
        """One step at a time, so that the optimizer can be saved in between."""
        neuron, train = self.neuron, self.neuron.run.train
        first = (neuron.state.step + 1) * train.inner_steps
        done = InnerResult()
        batches = self._batches(ahead.round, 0)
        for step in range(first, first + train.inner_steps):
            if ahead.halt or neuron.stopping.is_set():
                break
            started = time.monotonic()
            done = _together(done, await neuron.compute(self.trainer.train, batches, 1, step, _never))
            ahead.seconds += time.monotonic() - started
        return done

    def _batches(self, index: int, skip: int) -> Iterator[torch.Tensor]:
        """This miner's samples of round `index`, int64 `[B, T]` a step, from step `skip` on.

        Raises UserError when it has none: it is not registered any more, or its uid has no share.
        """
        neuron, run = self.neuron, self.neuron.run
        if neuron.uid is None:
            raise UserError(f"hotkey {neuron.signer.ss58} is no longer registered on subnet {neuron.flags.netuid}")
        if neuron.uid >= MAX_UIDS:
            raise UserError(f"uid {neuron.uid} has no share of the data, cut for {MAX_UIDS} uids; register again")
        count = run.train.inner_steps * run.train.batch_size
        ids = sample_ids(run.seed, neuron.shards.num_train, index, neuron.uid, MAX_UIDS, count)
        starts = range(skip * run.train.batch_size, count, run.train.batch_size)
        return (neuron.shards.train(ids[start : start + run.train.batch_size]) for start in starts)


def _together(a: InnerResult, b: InnerResult) -> InnerResult:
    return InnerResult(a.steps + b.steps, a.tokens + b.tokens, [*a.losses, *b.losses], a.skipped + b.skipped)


def _never() -> bool:
    return False
