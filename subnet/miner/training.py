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
from subnet.exchange.window import Window
from subnet.miner.recording import Recorded, Recording, remove
from subnet.model.build import build_model
from subnet.neuron import MAX_UIDS, Neuron


@dataclass
class _Ahead:
    """Steps of a round that are done before it begins: from which parameters, and how long they have taken."""

    round: int
    start: torch.Tensor
    recording: Recording | None
    task: asyncio.Task[InnerResult] | None = None
    seconds: float = 0.0
    halt: bool = False


class Training:
    """`trainer` holds the local parameters; `seconds` is what the last round's inner steps took, waiting excluded.

    `recorded` is what an audit of that round may ask for; None without steps, or without audits in this run.
    """

    def __init__(self, neuron: Neuron) -> None:
        run = neuron.run
        self.neuron = neuron
        self.trainer = InnerTrainer(build_model(run.model, neuron.node.device), run.train, neuron.layout)
        self.seconds = 0.0
        self.recorded: Recorded | None = None
        self._ahead: _Ahead | None = None
        self._shown: dict[int, Recorded] = {}
        self._folder = neuron.node.home / "replay"
        self._show_again()

    async def round(self, round_: Round) -> InnerResult:
        """Inner steps on this miner's assigned samples, until H of this round are done or its training phase ends."""
        neuron, train = self.neuron, self.neuron.run.train
        index = round_.window.round
        self._forget(index)
        done, recording = await self._take_over(index)
        attempted = len(done.trace)
        apart = train.inner_steps if recording is None else neuron.run.scoring.replay_steps

        def should_stop() -> bool:
            return neuron.stopping.is_set() or neuron.clock.block() >= round_.window.train_end

        started = time.monotonic()
        first = neuron.state.step * train.inner_steps
        batches = self._batches(index, attempted)
        try:
            while attempted < train.inner_steps and not should_stop():
                if recording is not None:
                    await neuron.compute(recording.take, attempted, first + attempted, self.trainer)
                count = min(apart, train.inner_steps - attempted)
                more = await neuron.compute(self.trainer.train, batches, count, first + attempted, should_stop)
                done, attempted = _together(done, more), attempted + len(more.trace)
                if len(more.trace) < count:
                    break
            if recording is not None:
                await self._keep(index, recording, done, first)
        finally:
            if recording is not None:
                await asyncio.to_thread(recording.close)
        self.seconds += time.monotonic() - started
        return done

    def begin_ahead(self, round_: Round) -> None:
        """Go on with the next round's steps from the local parameters, until `round` takes them over."""
        index = round_.window.round + 1
        self._ahead = _Ahead(index, self.trainer.theta(), self._record(index))
        self._ahead.task = asyncio.create_task(self._train_ahead(self._ahead))

    async def close(self) -> None:
        """End what is under way."""
        await self._halt(None)

    def _show_again(self) -> None:
        """Offer what a former process recorded: who starts again is still audited for the round before."""
        run, store = self.neuron.run, self.neuron.swarm.store
        found = {int(path.name): path for path in self._folder.glob("*") if path.name.isdecimal()}
        for index, path in sorted(found.items()):
            window = Window.of_round(run.rounds, index)
            late = window.round < Window.at(run.rounds, self.neuron.clock.block()).round - 1
            recorded = None if late else Recorded.load(path, self.neuron.layout, run)
            if recorded is None:
                remove(path)
                continue
            recorded.offer(store, window)
            self._shown[index] = recorded

    def _record(self, index: int) -> Recording | None:
        neuron = self.neuron
        if index in self._shown:  # a former process's, of this very round
            self._shown.pop(index).withdraw(neuron.swarm.store)
        return Recording(self._folder / str(index), neuron.layout) if neuron.run.scoring.replay_rate > 0 else None

    async def _keep(self, index: int, recording: Recording, done: InnerResult, first: int) -> None:
        attempted = len(done.trace)
        self.recorded = await self.neuron.compute(recording.finish, done.trace, first + attempted, self.trainer)
        if self.recorded is not None:
            self._shown[index] = self.recorded
        else:
            remove(recording.folder)

    def _forget(self, index: int) -> None:
        """In round `index` only the one before it is still audited."""
        self.recorded = None
        run, store = self.neuron.run, self.neuron.swarm.store
        for old in [shown for shown in self._shown if shown < index - 1]:
            self._shown.pop(old).withdraw(store)
            remove(self._folder / str(old))
        for kept, recorded in self._shown.items():  # begun ahead, a round starts with the last one's last snapshot
            recorded.offer(store, Window.of_round(run.rounds, kept))

    async def _halt(self, index: int | None) -> tuple[_Ahead, InnerResult] | None:
        """End the steps ahead, if there are any; they and their result if they are those of round `index`."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.task is None:
            return None
        ahead.halt = True
        result = await ahead.task
        if ahead.round == index:
            return ahead, result
        if ahead.recording is not None:
            await asyncio.to_thread(ahead.recording.close)
            remove(ahead.recording.folder)
        return None

    async def _take_over(self, index: int) -> tuple[InnerResult, Recording | None]:
        """Load the outer parameters, with what has been done ahead for round `index` on top; that, and its record."""
        theta, self.seconds = self.neuron.state.theta, 0.0
        found = await self._halt(index)
        if found is None:
            self.trainer.load(theta)
            return InnerResult(), self._record(index)
        ahead, result = found
        self.trainer.load(theta + (self.trainer.theta() - ahead.start))
        self.seconds = ahead.seconds
        if ahead.recording is not None:
            ahead.recording.join()
        return result, ahead.recording

    async def _train_ahead(self, ahead: _Ahead) -> InnerResult:
        """One step at a time, so that the optimizer can be saved in between."""
        neuron, train = self.neuron, self.neuron.run.train
        first = (neuron.state.step + 1) * train.inner_steps
        done = InnerResult()
        batches = self._batches(ahead.round, 0)
        for at in range(train.inner_steps):
            if ahead.halt or neuron.stopping.is_set():
                break
            started = time.monotonic()
            if ahead.recording is not None and at % neuron.run.scoring.replay_steps == 0:
                await neuron.compute(ahead.recording.take, at, first + at, self.trainer)
            done = _together(done, await neuron.compute(self.trainer.train, batches, 1, first + at, _never))
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
    return InnerResult(
        a.steps + b.steps, a.tokens + b.tokens, [*a.losses, *b.losses], a.skipped + b.skipped, [*a.trace, *b.trace]
    )


def _never() -> bool:
    return False
