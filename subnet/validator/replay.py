"""The replay audit: a drawn piece of a miner's inner steps, done again from the state it committed to before.

Not the judging of what it is worth (`judgement`). Who is drawn and what may differ is `scoring.replay`; the steps are
the miner's own code, on its assigned samples, so on the same build they come out bit for bit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from subnet.config import RunConfig
from subnet.data.assignment import sample_ids
from subnet.data.shards import Shards
from subnet.diloco import snapshot
from subnet.diloco.inner import InnerTrainer, TrainingDiverged
from subnet.diloco.layout import Layout
from subnet.exchange.commitment import Commitment
from subnet.exchange.trace import Trace, most_bytes, open_trace
from subnet.scoring.replay import NOT_SHOWN, Finding, compared, drawn, probes_of, step_of
from subnet.scoring.table import Observation
from subnet.swarm.blobs import FetchError
from subnet.swarm.records import BadRecord

PATIENCE = 10.0
"""Seconds that whoever is audited has at least; with less left of the round nothing is said."""


Fetch = Callable[[bytes, int, int, int, Callable[[int], int]], Awaitable[Sequence[bytes]]]
"""Pulls leaves from whom it is for, in the time it has: `await fetch(root, n_leaves, start, stop, sizes)`, with the
arguments of `Swarm.fetch_leaves`. Raises FetchError."""


@dataclass(frozen=True)
class Origin:
    """Where a round began: its number, the outer step and the fp32 parameters `[numel]`, for everybody the same."""

    round: int
    step: int
    theta: Tensor


@dataclass(frozen=True)
class Piece:
    """A segment of a miner's steps as it says they were.

    `theta`, `first_moment`, `second_moment`: fp32 `[numel]`, before the first of them. `ends`: fp32 by leaf index, the
    parameters after the last of them, less what was put under them meanwhile (`Trace.joined`).
    """

    trace: Trace
    number: int
    theta: Tensor
    first_moment: Tensor
    second_moment: Tensor
    ends: dict[int, Tensor]


class Replay:
    """Repeats steps on `model`, whose parameters it overwrites; `precision` as in `InnerTrainer`.

    While it runs it needs what a miner needs: gradients and two moments beside the model.
    """

    def __init__(
        self,
        run: RunConfig,
        shards: Shards,
        layout: Layout,
        model: torch.nn.Module,
        max_uids: int,
        precision: torch.dtype | None = None,
    ) -> None:
        self.run = run
        self.shards = shards
        self.layout = layout
        self.model = model
        self.max_uids = max_uids
        self.precision = precision

    async def pull(self, commitment: Commitment, beacon: bytes, origin: Origin, fetch: Fetch) -> Piece:
        """The piece that `beacon` draws of a contribution's steps, every byte as it was committed.

        Raises FetchError: it is not shown; BadRecord: it cannot be of such steps, for a reason that names the rule.
        """
        if not commitment.trace:
            raise BadRecord("no trace was committed")
        size = most_bytes(self.run)
        (packed,) = await fetch(commitment.trace, 1, 0, 1, lambda _: size)
        trace = open_trace(packed, self.run)
        self._check(trace, commitment, origin)
        number = trace.segment(step_of(beacon, commitment.hotkey, len(trace.losses)))
        probes = probes_of(beacon, commitment.hotkey, self.layout.num_leaves)
        mark, end = trace.marks[number], trace.marks[number + 1]
        if number == 0 and trace.joined == 0:
            theta = origin.theta
        else:
            theta = await self._vector(fetch, mark.root, 0)
        first = await self._vector(fetch, mark.root, 1)
        second = await self._vector(fetch, mark.root, 2)
        if bool((second < 0).any()):
            raise BadRecord("snapshot of an impossible optimizer")
        ends = {leaf: await self._leaf(fetch, end.root, leaf) for leaf in probes}
        if number + 1 == trace.joined:
            for leaf in probes:
                start = await self._leaf(fetch, trace.marks[0].root, leaf)
                ends[leaf] = ends[leaf] - (origin.theta[slice(*self.layout.leaves[leaf])] - start)
        return Piece(trace, number, theta, first, second, ends)

    def repeat(self, piece: Piece, uid: int, origin: Origin, should_stop: Callable[[], bool]) -> Finding:
        """Do the steps of a piece again, on the samples of `uid`, and compare. Nothing is said if told to stop."""
        trace, layout, train = piece.trace, self.layout, self.run.train
        mark, end = trace.marks[piece.number], trace.marks[piece.number + 1]
        trainer = InnerTrainer(self.model, train, layout, self.precision)
        trainer.load(piece.theta)
        if mark.adam_step:
            step = torch.tensor(float(mark.adam_step))
            moments = {"exp_avg": piece.first_moment, "exp_avg_sq": piece.second_moment, "step": step}
            trainer.load_state_dict(moments)
        per_round, size = train.inner_steps * train.batch_size, train.batch_size
        count, num_train = (end.at - mark.at) * size, self.shards.num_train
        ids = sample_ids(
            self.run.seed, num_train, origin.round, uid, self.max_uids, count, mark.at * size, per_round=per_round
        )
        batches = (self.shards.train(ids[i : i + size]) for i in range(0, count, size))
        try:
            result = trainer.train(batches, end.at - mark.at, mark.lr_step, should_stop)
        except TrainingDiverged:
            return Finding(False, "its steps diverge")
        if len(result.trace) < end.at - mark.at:
            return Finding(None, "no time")
        theta = trainer.theta()
        moments = trainer.state_dict()
        joins = piece.number + 1 == trace.joined
        if not joins and moments:
            tree = snapshot.hashed(layout, [theta, moments["exp_avg"], moments["exp_avg_sq"]])
            exact = tree.root == end.root
        else:
            exact = False
        committed = trace.losses[mark.at : end.at]
        repeated = torch.tensor(result.trace, dtype=torch.float32).tolist()
        return compared(committed, repeated, self._distance(piece, theta), exact and tuple(repeated) == committed)

    def _check(self, trace: Trace, commitment: Commitment, origin: Origin) -> None:
        """What a trace must have in common with the commitment and the round."""
        if trace.steps != commitment.steps:
            raise BadRecord("trace of another number of steps")
        for mark in trace.marks:
            if abs(mark.lr_step - origin.step * self.run.train.inner_steps - mark.at) > self.run.train.inner_steps:
                raise BadRecord("trace of a strange learning rate")
            done = sum(map(math.isfinite, trace.losses[: mark.at]))
            if mark.adam_step != trace.marks[0].adam_step + done:
                raise BadRecord("trace of a strange optimizer")

    def _distance(self, piece: Piece, theta: Tensor) -> float:
        """Between the ends, over the leaves that are known, as a share of the way."""
        apart = moved = 0.0
        for leaf, said in piece.ends.items():
            first, last = self.layout.leaves[leaf]
            apart += float((theta[first:last] - said).double().square().sum())
            moved += float((theta[first:last] - piece.theta[first:last]).double().square().sum())
        if apart == 0.0:
            return 0.0
        return math.inf if moved == 0.0 else (apart / moved) ** 0.5

    async def _vector(self, fetch: Fetch, root: bytes, vector: int) -> Tensor:
        leaves = self.layout.num_leaves
        return await self._pulled(fetch, root, vector * leaves, (vector + 1) * leaves)

    async def _leaf(self, fetch: Fetch, root: bytes, leaf: int) -> Tensor:
        return await self._pulled(fetch, root, leaf, leaf + 1)

    async def _pulled(self, fetch: Fetch, root: bytes, start: int, stop: int) -> Tensor:
        size = snapshot.num_leaves(self.layout)
        leaves = await fetch(root, size, start, stop, lambda leaf: snapshot.leaf_bytes(self.layout, leaf))
        try:
            return snapshot.opened(self.layout, leaves, start)
        except ValueError as error:
            raise BadRecord("malformed snapshot") from error


async def audit(
    replay: Replay,
    commitments: Sequence[Commitment],
    uids: Mapping[str, int],
    beacon: bytes,
    origin: Origin,
    source: Callable[[str, float], Fetch],
    seconds: Callable[[], float],
    compute: Callable[..., Awaitable[Finding]],
) -> dict[str, Finding]:
    """Audit those of the contributions that `beacon` draws, one after the other; findings by hotkey.

    `source(hotkey, limit)` pulls from a hotkey until the loop's time `limit`; `seconds()` are left for all of it;
    `compute(work, *arguments)` is where the steps are done. Everybody has an equal share of the time.
    """
    loop = asyncio.get_running_loop()
    called = [c for c in commitments if drawn(beacon, c.hotkey, replay.run.scoring.replay_rate)]
    findings: dict[str, Finding] = {}
    for left, commitment in zip(range(len(called), 0, -1), called, strict=True):
        turn = seconds() / left
        limit = loop.time() + turn
        try:
            piece = await replay.pull(commitment, beacon, origin, source(commitment.hotkey, limit))
        except FetchError:
            findings[commitment.hotkey] = Finding(False if turn >= PATIENCE else None, NOT_SHOWN)
            continue
        except BadRecord as error:
            findings[commitment.hotkey] = Finding(False, str(error))
            continue
        uid = uids[commitment.hotkey]
        findings[commitment.hotkey] = await compute(replay.repeat, piece, uid, origin, lambda: seconds() <= 0.0)
    return findings


def with_findings(observed: Mapping[str, Observation], findings: Mapping[str, Finding]) -> dict[str, Observation]:
    """A round's observations with what the audits found.

    Where nobody showed this validator anything, its own link is at fault, and that steps are not shown says nothing.
    """
    nobody = all(o.loss is None for o in observed.values())
    known = {h: None if nobody and f.why == NOT_SHOWN else f.passed for h, f in findings.items()}
    return {hotkey: replace(o, replayed=known.get(hotkey)) for hotkey, o in observed.items()}
