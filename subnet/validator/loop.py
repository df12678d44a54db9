"""A validator's round loop: follow the exchange on time, and score the last round's contributions beside it.

    roster (leading it when it is its turn) -> gather -> outer step and agreement    | score r-1, set weights

It trains nothing and reduces nothing; it scores the committed bytes themselves, pulled from their owners after the
roster, and keeps one extra copy of the parameters: those the contributions were trained from.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from subnet.chain.client import WeightsOutcome
from subnet.chain.errors import ChainUnreachable
from subnet.chain.reveal import Commits
from subnet.diloco.state import OuterState
from subnet.exchange.claims import Agreement, claims_of
from subnet.exchange.commitment import Commitment
from subnet.exchange.round import Round, Update
from subnet.exchange.window import Window
from subnet.neuron import MAX_UIDS, Neuron
from subnet.scoring.copies import SKETCH
from subnet.scoring.replay import Finding
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.scoring.weights import weights
from subnet.swarm.blobs import FetchError
from subnet.validator import scores, sketchbook
from subnet.validator.evaluate import Evaluator
from subnet.validator.judgement import WORTHLESS, Case, Judge, Judgement
from subnet.validator.pay import Paymaster
from subnet.validator.replay import Fetch, Origin, Replay, audit, with_findings
from subnet.validator.reveal import Revealer
from subnet.validator.sketchbook import Sketchbook
from subnet.validator.spool import Spool
from subnet.waiting import end

log = logging.getLogger(__name__)

PARALLEL_PULLS = 4
TOLD = 8
"""Hotkeys or uids named in one log line."""


@dataclass(frozen=True)
class Finished:
    """What a validator remembers of a round to score it: where it started from, what came of it, who agreed."""

    round: Round
    theta: torch.Tensor
    step: int
    update: Update
    agreed: frozenset[str]
    omitted: tuple[Commitment, ...]
    """Commitments that this validator saw in time and the roster leaves out."""


class Validator:
    """Scores, sets weights, and follows the state; its table survives restarts."""

    def __init__(self, neuron: Neuron) -> None:
        self.neuron = neuron
        neuron.resumed = None  # it was the state only
        evaluator = Evaluator(neuron.run, neuron.shards, neuron.layout, neuron.node.device, MAX_UIDS)
        self._sketches_path = neuron.node.home / "sketches"
        book = sketchbook.load(self._sketches_path, min(SKETCH, neuron.layout.numel))
        self.judge = Judge(neuron.exchange.scheme, evaluator, neuron.run, book.secret)
        self.replay = Replay(neuron.run, neuron.shards, neuron.layout, evaluator.model, MAX_UIDS)
        self.judge.sketches = dict(book.sketches)
        self.spool = Spool(neuron.node.home / "spool")
        self.commits = Commits(neuron.chain, neuron.flags.netuid, neuron.signer)
        self.revealer = Revealer(neuron.node.home / "commits.json", self.commits, neuron.clock.block, neuron.wait_for)
        self.paymaster = Paymaster(self._send_weights, neuron.clock.block, neuron.wait_for)
        self._path = neuron.node.home / "scores.json"
        self.table = scores.load(self._path)
        self._scoring: asyncio.Task[None] | None = None
        self._paying: asyncio.Task[None] | None = None
        self._revealing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """The loop; returns when the neuron is stopping."""
        neuron, exchange = self.neuron, self.neuron.exchange
        finished: Finished | None = None
        self._revealing = asyncio.create_task(self.revealer.run())
        async for round_ in neuron.rounds():
            neuron.enter("score", round_)
            self._begin_scoring(finished, round_)
            if not await neuron.wait_for(round_.window.commit_end):
                break
            neuron.enter("roster", round_)
            before = neuron.state
            committed = asyncio.create_task(exchange.committed(round_, before.digest()))
            roster = await exchange.agree_on_roster(round_, None, before.digest())
            update: Update | None = None
            if roster is not None:
                neuron.enter("gather", round_)
                update = await exchange.gather(round_, roster, [])
            neuron.enter("apply", round_)
            agreement = await neuron.finish(round_, update)
            finished = await self._remember(round_, before, update, agreement, await committed)
            await neuron.save(round_)
            neuron.report(round_, update, agreement)
        for task in (self._scoring, self._paying, self._revealing):
            if task is not None:
                task.cancel()

    def _begin_scoring(self, finished: Finished | None, now: Round) -> None:
        """Start on the last round, unless the one before is still being scored: then this machine is too slow."""
        if self._scoring is not None:
            if not self._scoring.done():
                log.warning("round %d: scoring takes longer than a round; one round is not scored", now.window.round)
                return
            self._scoring.result()
            self._scoring = None
        if self.table.round >= now.window.round:
            log.warning("the scores end at round %d, still to come: another chain's; starting afresh", self.table.round)
            self.table = ScoreTable()
        self._scoring = asyncio.create_task(self._score_and_pay(finished, now))

    async def _score_and_pay(self, finished: Finished | None, now: Round) -> None:
        if finished is not None and finished.round.window.round > self.table.round:
            await self.score(finished, now)
        # A task of its own: while the chain is out of reach, attempts may last into the next round, which is scored.
        if self._paying is None or self._paying.done():
            if self._paying is not None:
                self._paying.result()
            self._paying = asyncio.create_task(self.pay(now))
        if self._revealing is not None and self._revealing.done():
            self._revealing.result()

    async def score(self, finished: Finished, now: Round) -> None:
        """Evaluate every listed contribution of a finished round; its owner must deliver it before `now` ends."""
        neuron, window = self.neuron, finished.round.window
        case = await self._case(finished, now)
        judgement = await neuron.compute(self.judge.begin, case)
        replays = asyncio.create_task(self._replays(finished, case, judgement.wanted, now))
        try:
            await self._hear(judgement, window, now)
            observed = with_findings(await neuron.compute(judgement.observations), await replays)
        finally:
            await end([replays])
        await self._learn(judgement, observed, await replays, window)

    async def _hear(self, judgement: Judgement, window: Window, now: Round) -> None:
        neuron = self.neuron
        slots = asyncio.Semaphore(PARALLEL_PULLS)

        # Everybody has a turn of the same length: owners that keep this peer waiting must not use up the others' time.
        turns = math.ceil(len(judgement.wanted) / PARALLEL_PULLS)
        turn = max(0.0, now.window.gather_end - neuron.clock.block()) / max(1, turns)

        async def hear(commitment: Commitment) -> None:
            async with slots:
                leaves = await self._pull(window, commitment, neuron.clock.block() + turn)
                wrong = await neuron.compute(judgement.hear_leaves, commitment, leaves)
                if wrong is not None:
                    neuron.exchange.refusals.drop(window, commitment.hotkey, wrong)

        await asyncio.gather(*(hear(c) for c in judgement.wanted))
        for commitment in await neuron.compute(judgement.undecided):
            leaves = await asyncio.to_thread(self.spool.get, commitment.hotkey)
            if leaves is not None:
                await neuron.compute(judgement.hear_leaves_again, commitment, leaves)
        await asyncio.to_thread(self.spool.clear)

    async def _learn(
        self, judgement: Judgement, observed: dict[str, Observation], replays: dict[str, Finding], window: Window
    ) -> None:
        neuron = self.neuron
        for hotkey, finding in replays.items():
            level = logging.WARNING if finding.passed is False else logging.INFO
            log.log(level, "round %d: audit of the inner steps of %s: %s", window.round, hotkey, finding)
        faulty = sorted(judgement.faulty())
        for hotkey in faulty:
            log.warning("round %d: %s signed for a part that its contributions do not give", window.round, hotkey)
        self.table = observe(self.table, window.round, observed, neuron.run.scoring)
        await asyncio.to_thread(self._save)
        log.info("round %d: scored %s; held-out loss %.4f before", window.round, _told(observed), judgement.baseline)
        neuron.telemetry.event(
            "scores",
            round=window.round,
            held_out_loss=judgement.baseline,
            faulty=faulty,
            drops={hotkey: _finite(o.loss.held_out) if o.loss else None for hotkey, o in observed.items()},
            own_drops={hotkey: _finite(o.loss.own) if o.loss else None for hotkey, o in observed.items()},
            ratings={hotkey: list(row.rating) for hotkey, row in self.table.rows.items()},
            evidence={hotkey: row.evidence.value for hotkey, row in self.table.rows.items()},
            trained={hotkey: row.trained for hotkey, row in self.table.rows.items()},
            twins={hotkey: sorted(o.twins) for hotkey, o in observed.items() if o.twins},
            stale=sorted(hotkey for hotkey, o in observed.items() if o.stale),
            replayed={hotkey: {"passed": o.replayed, "found": str(replays[hotkey])} for hotkey, o in observed.items()
                      if hotkey in replays},
        )  # fmt: skip

    async def _replays(
        self, finished: Finished, case: Case, wanted: Sequence[Commitment], now: Round
    ) -> dict[str, Finding]:
        """The audits of inner steps that the block after the round draws; their owners have until `now` gathers."""
        neuron = self.neuron
        loop = asyncio.get_running_loop()

        def source(hotkey: str, limit: float) -> Fetch:
            async def fetch(root: bytes, n: int, start: int, stop: int, sizes: Callable[[int], int]) -> Sequence[bytes]:
                left = max(0.0, limit - loop.time())
                return await neuron.swarm.fetch_leaves([hotkey], root, n, start, stop, sizes, left)

            return fetch

        origin = Origin(case.round, finished.step, case.theta)
        seconds = partial(neuron.clock.seconds_until, now.window.gather_end)
        return await audit(self.replay, wanted, case.uids, case.audit_beacon, origin, source, seconds, neuron.compute)

    def _save(self) -> None:
        scores.save(self._path, self.table)
        try:
            sketchbook.save(self._sketches_path, Sketchbook(self.judge.secret, self.judge.sketches))
        except OSError as error:
            log.warning("the round's sketches cannot be saved: %s; after a restart, copies of it are not told", error)

    async def pay(self, round_: Round) -> None:
        """Set weights when they are due, from the table as it then is; after a failure again, until the round ends."""
        neuron = self.neuron
        interval = max(neuron.metagraph.tempo, neuron.hyperparameters.weights_rate_limit)
        attempt = await self.paymaster.pay(self._weights, interval, round_.window.end)
        if attempt is None:
            return
        shares = sorted(attempt.weights.items(), key=lambda item: item[1], reverse=True)
        listed = ", ".join(f"uid {uid} {share:.3f}" for uid, share in shares[:TOLD])
        level = logging.INFO if attempt.outcome.ok or neuron.chain.in_reach else logging.DEBUG
        number = round_.window.round
        log.log(level, "round %d: weights %s (%d uids: %s)", number, attempt.outcome, len(shares), listed)
        neuron.telemetry.event(
            "weights",
            round=number,
            ok=attempt.outcome.ok,
            detail=str(attempt.outcome),
            weights={str(uid): weight for uid, weight in attempt.weights.items()},
        )

    def _weights(self) -> dict[int, float]:
        graph = self.neuron.metagraph
        registered = {row.hotkey: row.uid for row in graph.rows}
        return weights(self.table, registered, self.neuron.run.scoring, graph.uid_of(graph.owner_hotkey))

    async def _send_weights(self, paid: dict[int, float]) -> WeightsOutcome:
        """Refused, it may be for an old version key: the hyperparameters are read again."""
        neuron = self.neuron
        version = neuron.hyperparameters.weights_version
        try:
            if await self.commits.needed():
                outcome = await self.revealer.commit(paid, version)
            else:
                outcome = await neuron.chain.set_weights(neuron.flags.netuid, neuron.signer, paid, version)
        except ChainUnreachable as error:
            # An outcome, not an error: they are set again later.
            return WeightsOutcome(False, wait_blocks=1, refused=str(error))
        if outcome.refused:
            with contextlib.suppress(ChainUnreachable):
                neuron.hyperparameters = await neuron.chain.hyperparameters(neuron.flags.netuid)
        return outcome

    async def _case(self, finished: Finished, now: Round) -> Case:
        neuron, window = self.neuron, finished.round.window
        uids = {row.hotkey: row.uid for row in neuron.metagraph.rows if row.uid < MAX_UIDS}
        beacon = await neuron.beacon(window.roster_end, now.window.commit_end)
        after = await neuron.beacon(window.end, now.window.commit_end)
        return Case(
            window.round, finished.theta, finished.update, finished.agreed, uids, beacon, after, finished.omitted
        )

    async def _pull(self, window: Window, commitment: Commitment, deadline: float) -> Sequence[bytes] | None:
        """The committed bytes, kept for a second look if there is room; None when they cannot be had."""
        exchange = self.neuron.exchange
        try:
            leaves = await exchange.pull_contribution(window, commitment, deadline)
        except FetchError as error:
            exchange.refusals.drop(window, commitment.hotkey, error)
            return None
        try:
            await asyncio.to_thread(self.spool.put, commitment.hotkey, leaves)
        except OSError as error:
            log.warning("round %d: no room for a second look at a contribution: %s", window.round, error)
        return leaves

    async def _remember(
        self,
        round_: Round,
        before: OuterState,
        update: Update | None,
        agreement: Agreement,
        committed: Sequence[Commitment],
    ) -> Finished | None:
        if update is None or agreement.majority is None:
            return None
        window = round_.window
        exchange = self.neuron.exchange
        claims = await claims_of(exchange.swarm, window.round, partial(exchange.refusals.drop, window))
        digest = agreement.majority.digest
        agreed = frozenset(c.hotkey for c in claims if c.digest == digest)
        listed = {c.hotkey for c in update.roster.commitments}
        omitted = tuple(c for c in committed if c.hotkey not in listed)
        return Finished(round_, before.theta, before.step, update, agreed, omitted)


def _told(observed: dict[str, Observation]) -> str:
    """How many contributions were scored, and the best by how far they lower the held-out loss, in nats a token."""
    drops = {h: o.loss.held_out for h, o in observed.items() if o.loss is not None and o.loss is not WORTHLESS}
    best = sorted(drops.items(), key=lambda item: item[1], reverse=True)
    listed = ", ".join(f"{hotkey[:8]} {drop:+.4f}" for hotkey, drop in best[:TOLD])
    return f"{len(drops)} of {len(observed)} contributions" + (f" (loss drops: {listed})" if listed else "")


def _finite(drop: float) -> float | None:
    """A loss drop as JSON has it: no number for one that could not be measured."""
    return drop if math.isfinite(drop) else None
