"""Bringing this peer's leaves to the state that most hold, each by whatever costs fewer bytes, from several holders.

A leaf of an earlier step is replayed with the updates since, a few bits a parameter each; any other is fetched. Both
end at the hashes under the signed root, so no source is trusted, and a leaf that once fits is not asked for again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from subnet.config import OuterConfig
from subnet.diloco.codec import Codec, CodecError, Fp32, decode_part
from subnet.diloco.merkle import HASH_BYTES, leaf_hash
from subnet.diloco.outer import outer_step
from subnet.diloco.state import OuterState
from subnet.exchange.majority import Majority
from subnet.exchange.unfinished import Unfinished
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm
from subnet.waiting import end

# Leaves asked of one source at a time: long enough to amortise a request, short enough to spread over sources.
RUN_LEAVES = 64
PARALLEL_RUNS = 4
PATIENCE_SECONDS = 20.0
SLOWEST_BYTES = 50e3
"""Bytes a second. Holders that together do not deliver a run at this pace, after PATIENCE_SECONDS, do not deliver."""
_FP32 = Fp32()


@dataclass(frozen=True)
class Stepping:
    """What takes a state to the next one: the codec of the updates' leaves, and the outer optimizer."""

    reduced: Codec
    outer: OuterConfig


class StateFetch:
    """One attempt at `target`. `work` holds what is there and is left, after a failure, with all that came; a success
    hands its tensors out.

    `leaves` counts those of the state that were brought to it, `received` the payload bytes that took.
    """

    def __init__(
        self,
        swarm: Swarm,
        stepping: Stepping,
        target: Majority,
        work: Unfinished,
        progress: Callable[[int, int], None],
    ) -> None:
        self.swarm = swarm
        self.stepping = stepping
        self.target = target
        self.work = work
        self.layout = work.state.layout
        self.finished = False
        self.leaves = 0
        self.received = 0
        self._progress = progress
        self._holders = [h for h in target.holders if h != swarm.hotkey]
        self._missing: set[int] = set()
        self._total = 0
        self._theirs: Sequence[bytes] = ()
        self._deadline = 0.0

    async def run(self, timeout: float) -> OuterState:
        """The majority's state.

        Raises:
            FetchError: the holders did not deliver in `timeout` seconds, did not keep up the least pace, or what they
                hold is not what was signed.
        """
        if not self._holders:
            raise FetchError("nobody else holds the majority state")
        self._deadline = asyncio.get_running_loop().time() + timeout
        num_leaves = self.work.state.num_leaves
        patience = min(timeout, _patience(num_leaves * HASH_BYTES))
        self._theirs = await self.swarm.fetch_hashes(self._holders, self.target.root, num_leaves, timeout=patience)
        await asyncio.to_thread(self._compare)
        self._total = len(self._missing)
        await self._all(self._replay, self._replayable())
        await self._all(self._fetch, runs_of(sorted(self._missing), RUN_LEAVES))
        state = self.work.state
        state.step = self.target.step
        if state.digest() != self.target.digest:
            raise FetchError("the assembled state does not match the signed digest")
        self.finished = True
        return state

    def _compare(self) -> None:
        """Find out which leaves are not the majority's yet."""
        mine = self.work.state.leaf_hashes()
        for leaf, (a, b) in enumerate(zip(mine, self._theirs, strict=True)):
            if a == b:
                self.work.steps[leaf] = self.target.step
            else:
                self._missing.add(leaf)

    def _replayable(self) -> list[tuple[int, int]]:
        """Runs of the layout's leaves, each of one step, that cost less to replay than to fetch."""
        runs: list[tuple[int, int]] = []
        before = -1
        for leaf in range(self.layout.num_leaves):
            step = self.work.step_of(leaf)
            behind = self.target.step - step
            lacking = self._missing & {leaf, leaf + self.layout.num_leaves}
            cost = behind * self.stepping.reduced.max_encoded_size(self._elements(leaf))
            useful = lacking and step >= 0 and 0 < behind <= len(self.target.updates)
            if not useful or cost >= sum(map(self.work.state.leaf_size, lacking)):
                continue
            if runs and runs[-1][1] == leaf and step == before and leaf - runs[-1][0] < RUN_LEAVES:
                runs[-1] = (runs[-1][0], leaf + 1)
            else:
                runs.append((leaf, leaf + 1))
            before = step
        return runs

    async def _all(self, work: Callable[[int, int, int], Awaitable[None]], runs: Sequence[tuple[int, int]]) -> None:
        """All runs, a few at a time; the first failure ends them."""
        slots = asyncio.Semaphore(PARALLEL_RUNS)

        async def one(number: int, start: int, stop: int) -> None:
            async with slots:
                await work(number, start, stop)

        tasks = [asyncio.create_task(one(number, *run)) for number, run in enumerate(runs)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end(tasks)

    async def _replay(self, number: int, start: int, stop: int) -> None:
        """Take the steps since; where that does not lead to the majority's leaves they are left to be fetched."""
        behind = self.target.step - self.work.step_of(start)
        longest = [self.stepping.reduced.max_encoded_size(self._elements(leaf)) for leaf in range(start, stop)]
        limit = self._limit(behind * sum(longest))
        updates = list(reversed(self.target.updates[:behind]))

        def fetch(root: bytes, keepers: Sequence[str]) -> Awaitable[list[bytes]]:
            return self.swarm.fetch_leaves(
                _from(number, keepers), root, self.layout.num_leaves, start, stop,
                lambda leaf: longest[leaf - start], timeout=limit,
            )  # fmt: skip

        tasks = [asyncio.ensure_future(fetch(*update)) for update in updates]
        try:
            encoded = await asyncio.gather(*tasks)
        except FetchError:
            return
        finally:
            await end(tasks)
        self.received += sum(len(leaf) for leaves in encoded for leaf in leaves)
        await asyncio.to_thread(self._advance, start, stop, encoded)
        self._progress(self.leaves, self._total)

    def _advance(self, start: int, stop: int, updates: Sequence[Sequence[bytes]]) -> None:
        """`updates` of the leaves `[start, stop)`, the first one first."""
        state, outer, half = self.work.state, self.stepping.outer, self.layout.num_leaves
        elements = slice(*self.layout.span(start, stop))
        theta, momentum = state.theta[elements], state.momentum[elements]
        try:
            for leaves in updates:
                delta = torch.cat([self._values(start + i, leaf) for i, leaf in enumerate(leaves)])
                theta, momentum = outer_step(theta, momentum, delta, outer.lr, outer.momentum, outer.nesterov)
            for values, first in ((theta, start), (momentum, start + half)):
                pieces = values.split([self._elements(leaf) for leaf in range(start, stop)])
                for leaf, data in enumerate(map(_FP32.encode, pieces), first):
                    if leaf_hash(data) == self._theirs[leaf]:
                        self._arrived(leaf, data)
        except CodecError:
            return

    def _values(self, leaf: int, data: bytes) -> torch.Tensor:
        """One leaf of an update; nothing came of a part that was missing. Raises CodecError."""
        if not data:
            return torch.zeros(self._elements(leaf))
        return decode_part(self.stepping.reduced, self.layout, [data], leaf, leaf + 1)

    async def _fetch(self, number: int, start: int, stop: int) -> None:
        limit = self._limit(sum(map(self.work.state.leaf_size, range(start, stop))))
        leaves = await self.swarm.fetch_leaves(
            _from(number, self._holders), self.target.root, self.work.state.num_leaves, start, stop,
            self.work.state.leaf_size, timeout=limit,
        )  # fmt: skip
        self.received += sum(map(len, leaves))
        try:
            for leaf, data in enumerate(leaves, start):
                self._arrived(leaf, data)
        except CodecError as error:
            raise FetchError(f"the state that was signed is none: {error}") from error
        self._progress(self.leaves, self._total)

    def _arrived(self, leaf: int, data: bytes) -> None:
        """Raises CodecError."""
        if leaf in self._missing:
            self.work.set_leaf(leaf, data, self.target.step)
            self._missing.discard(leaf)
            self.leaves += 1

    def _limit(self, num_bytes: int) -> float:
        return min(self._deadline - asyncio.get_running_loop().time(), _patience(num_bytes))

    def _elements(self, leaf: int) -> int:
        first, last = self.layout.leaves[leaf]
        return last - first


def runs_of(indices: Iterable[int], longest: int) -> list[tuple[int, int]]:
    """Runs `[start, stop)`, at most `longest` each, that cover exactly these rising indices."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index and index - runs[-1][0] < longest:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs


def _patience(num_bytes: int) -> float:
    """Seconds within which so many bytes come, from anybody who means to deliver."""
    return PATIENCE_SECONDS + num_bytes / SLOWEST_BYTES


def _from(number: int, holders: Sequence[str]) -> list[str]:
    """All the holders, beginning with another one for every run."""
    first = number % max(1, len(holders))
    return list(itertools.islice(itertools.cycle(holders), first, first + len(holders)))
