"""A validator's round loop: follow the exchange on time, and score the last round's contributions beside it.

    roster (leading it when it is its turn) -> gather -> outer step and agreement    | score r-1, set weights

It trains nothing and reduces nothing; it scores the committed bytes themselves, pulled from their owners after the
roster, and keeps one extra copy of the parameters: those the contributions were trained from.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from functools import partial

import torch

from subnet.diloco.codec import CodecError
from subnet.exchange.commitment import Commitment
from subnet.exchange.repair import Agreement, claims_of
from subnet.exchange.round import Round, Update
from subnet.exchange.window import Window
from subnet.neuron import MAX_UIDS, Neuron
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.scoring.weights import weights
from subnet.swarm.blobs import FetchError
from subnet.swarm.records import BadRecord
from subnet.validator import scores
from subnet.validator.evaluate import Evaluator
from subnet.validator.judgement import WORTHLESS, Case, Judge, opened

log = logging.getLogger(__name__)

PARALLEL_PULLS = 4
TOLD = 8
"""Hotkeys or uids named in one log line."""


@dataclass(frozen=True)
class Finished:
    """What a validator remembers of a round to score it: where it started from, what came of it, who agreed."""

    round: Round
    theta: torch.Tensor
    update: Update
    agreed: frozenset[str]


class Validator:
    """Scores, sets weights, and follows the state; its table survives restarts."""

    def __init__(self, neuron: Neuron) -> None:
        self.neuron = neuron
        neuron.resumed = None  # it was the state only
        evaluator = Evaluator(neuron.run, neuron.shards, neuron.layout, neuron.node.device, MAX_UIDS)
        self.judge = Judge(neuron.exchange.scheme, evaluator, neuron.run.scoring)
        self._path = neuron.node.home / "scores.json"
        self.table = scores.load(self._path)
        self._weights_block: int | None = None
        self._scoring: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """The loop; returns when the neuron is stopping."""
        neuron, exchange = self.neuron, self.neuron.exchange
        finished: Finished | None = None
        async for round_ in neuron.rounds():
            neuron.enter("score", round_)
            self._begin_scoring(finished, round_)
            if not await neuron.wait_for(round_.window.commit_end):
                break
            neuron.enter("roster", round_)
            before = neuron.state
            roster = await exchange.agree_on_roster(round_, None, before.digest())
            update: Update | None = None
            if roster is not None:
                neuron.enter("gather", round_)
                update = await exchange.gather(round_, roster, [])
            neuron.enter("apply", round_)
            agreement = await neuron.finish(round_, update)
            finished = await self._remember(round_, before.theta, update, agreement)
            await asyncio.to_thread(neuron.save, round_, None, {})
            neuron.report(round_, update, agreement)
        if self._scoring is not None:
            self._scoring.cancel()

    def _begin_scoring(self, finished: Finished | None, now: Round) -> None:
        """Start on the last round, unless the one before is still being scored: then this machine is too slow."""
        if self._scoring is not None:
            if not self._scoring.done():
                log.warning("round %d: scoring takes longer than a round; one round is not scored", now.window.round)
                return
            self._scoring.result()
            self._scoring = None
        if finished is None:
            return
        if self.table.round >= now.window.round:
            log.warning("the scores end at round %d, still to come: another chain's; starting afresh", self.table.round)
            self.table = ScoreTable()
        if finished.round.window.round > self.table.round:
            self._scoring = asyncio.create_task(self._score_and_pay(finished, now))

    async def _score_and_pay(self, finished: Finished, now: Round) -> None:
        await self.score(finished, now)
        await self.set_weights(now)

    async def score(self, finished: Finished, now: Round) -> None:
        """Evaluate every listed contribution of a finished round; its owner must deliver it before `now` ends."""
        neuron, window = self.neuron, finished.round.window
        judgement = await neuron.compute(self.judge.begin, await self._case(finished, now))
        slots = asyncio.Semaphore(PARALLEL_PULLS)

        # Everybody has a turn of the same length: owners that keep this peer waiting must not use up the others' time.
        turns = math.ceil(len(judgement.wanted) / PARALLEL_PULLS)
        turn = max(0.0, now.window.gather_end - neuron.clock.block()) / max(1, turns)

        async def hear(commitment: Commitment) -> None:
            async with slots:
                delta = await self._contribution(window, commitment, neuron.clock.block() + turn)
                await neuron.compute(judgement.hear, commitment, delta)

        await asyncio.gather(*(hear(c) for c in judgement.wanted))
        observed = await neuron.compute(judgement.observations)
        faulty = sorted(judgement.faulty())
        for hotkey in faulty:
            log.warning("round %d: %s signed for a part that its contributions do not give", window.round, hotkey)
        self.table = observe(self.table, window.round, observed, neuron.run.scoring)
        await asyncio.to_thread(scores.save, self._path, self.table)
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
        )

    async def set_weights(self, round_: Round) -> None:
        """Set weights once a tempo; refused or unreachable, they are kept in the table and set at the next chance."""
        neuron = self.neuron
        block = int(neuron.clock.block())
        interval = max(neuron.metagraph.tempo, neuron.hyperparameters.weights_rate_limit)
        if self._weights_block is not None and block - self._weights_block < interval:
            return
        registered = {row.hotkey: row.uid for row in neuron.metagraph.rows}
        owner = neuron.metagraph.uid_of(neuron.metagraph.owner_hotkey)
        paid = weights(self.table, registered, neuron.run.scoring, owner)
        if not paid:
            return
        outcome = await neuron.set_weights(paid)
        if outcome.ok:
            self._weights_block = block
        shares = sorted(paid.items(), key=lambda item: item[1], reverse=True)
        listed = ", ".join(f"uid {uid} {share:.3f}" for uid, share in shares[:TOLD])
        level = logging.INFO if outcome.ok or neuron.chain.in_reach else logging.DEBUG
        log.log(level, "round %d: weights %s (%d uids: %s)", round_.window.round, outcome, len(paid), listed)
        neuron.telemetry.event(
            "weights",
            round=round_.window.round,
            ok=outcome.ok,
            detail=str(outcome),
            weights={str(uid): weight for uid, weight in paid.items()},
        )

    async def _case(self, finished: Finished, now: Round) -> Case:
        neuron, window = self.neuron, finished.round.window
        uids = {row.hotkey: row.uid for row in neuron.metagraph.rows if row.uid < MAX_UIDS}
        beacon = await neuron.beacon(window.roster_end, now.window.commit_end)
        after = await neuron.beacon(window.end, now.window.commit_end)
        return Case(window.round, finished.theta, finished.update, finished.agreed, uids, beacon, after)

    async def _contribution(self, window: Window, commitment: Commitment, deadline: float) -> torch.Tensor | None:
        """The committed pseudo-gradient as fp32, or None when it cannot be had or is not what was declared."""
        exchange = self.neuron.exchange
        try:
            leaves = await exchange.pull_contribution(window, commitment, deadline)
            return await self.neuron.compute(opened, exchange.scheme, commitment, leaves)
        except (FetchError, CodecError, BadRecord) as error:
            exchange.refusals.drop(window, commitment.hotkey, error)
            return None

    async def _remember(
        self, round_: Round, theta: torch.Tensor, update: Update | None, agreement: Agreement
    ) -> Finished | None:
        if update is None or agreement.majority is None:
            return None
        window = round_.window
        exchange = self.neuron.exchange
        claims = await claims_of(exchange.swarm, window.round, partial(exchange.refusals.drop, window))
        digest = agreement.majority.digest
        return Finished(round_, theta, update, frozenset(c.hotkey for c in claims if c.digest == digest))


def _told(observed: dict[str, Observation]) -> str:
    """How many contributions were scored, and the best by how far they lower the held-out loss, in nats a token."""
    drops = {h: o.loss.held_out for h, o in observed.items() if o.loss is not None and o.loss is not WORTHLESS}
    best = sorted(drops.items(), key=lambda item: item[1], reverse=True)
    listed = ", ".join(f"{hotkey[:8]} {drop:+.4f}" for hotkey, drop in best[:TOLD])
    return f"{len(drops)} of {len(observed)} contributions" + (f" (loss drops: {listed})" if listed else "")


def _finite(drop: float) -> float | None:
    """A loss drop as JSON has it: no number for one that could not be measured."""
    return drop if math.isfinite(drop) else None
