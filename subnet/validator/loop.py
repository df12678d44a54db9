"""A validator's round loop: follow the exchange on time, and score the last round's contributions beside it.

    roster (leading it when it is its turn) -> gather -> outer step and agreement    | score r-1, set weights

It trains nothing and reduces nothing; it scores the committed bytes themselves, pulled from their owners after the
roster, and keeps one extra copy of the parameters: those the contributions were trained from.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from subnet.diloco.aggregate import clip_factors, norm
from subnet.diloco.codec import CodecError, decode_part
from subnet.exchange.commitment import NORM_TOLERANCE, Commitment
from subnet.exchange.repair import Agreement, claims_of
from subnet.exchange.round import Round, Update
from subnet.neuron import MAX_UIDS, Neuron
from subnet.scoring.loss import LossScore
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.scoring.weights import weights
from subnet.swarm.blobs import FetchError
from subnet.swarm.records import BadRecord
from subnet.validator import scores
from subnet.validator.audit import Audit
from subnet.validator.evaluate import Evaluator

log = logging.getLogger(__name__)

PARALLEL_PULLS = 4
TOLD = 8
"""Hotkeys or uids named in one log line."""
WORTHLESS = LossScore(-math.inf, 0.0, -math.inf, 0.0)
"""The score of a contribution that its owner does not show, or that is not what was declared: last, and no evidence."""


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
        self.evaluator = Evaluator(neuron.run, neuron.shards, neuron.layout, neuron.node.device, MAX_UIDS)
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
        beacon = await neuron.beacon(window.roster_end, now.window.commit_end)
        baseline = await neuron.compute(self.evaluator.begin, finished.theta, beacon, window.round)
        roster = finished.update.roster
        clips = clip_factors([c.norm for c in roster.commitments])
        after = await neuron.beacon(window.end, now.window.commit_end)
        audit = Audit(neuron.exchange.scheme, finished.update, after, neuron.run.scoring.audit_rate)
        slots = asyncio.Semaphore(PARALLEL_PULLS)

        # Everybody has a turn of the same length: owners that keep this peer waiting must not use up the others' time.
        turns = math.ceil(len(roster.commitments) / PARALLEL_PULLS)
        turn = max(0.0, now.window.gather_end - neuron.clock.block()) / turns

        async def judge(commitment: Commitment, clip: float) -> LossScore | None:
            async with slots:
                uid = neuron.metagraph.uid_of(commitment.hotkey)
                if uid is None or uid >= MAX_UIDS:
                    return None
                delta = await self._contribution(finished, commitment, neuron.clock.block() + turn)
                if delta is None:
                    return WORTHLESS
                audit.note(commitment.hotkey, delta)
                return await neuron.compute(self.evaluator.measure, commitment, uid, delta, clip)

        losses = await asyncio.gather(*(judge(c, k) for c, k in zip(roster.commitments, clips, strict=True)))
        if all(loss is None or loss is WORTHLESS for loss in losses):
            losses = [None] * len(losses)  # that nobody at all delivers says more of this validator's own link
        faulty = finished.update.faults | await neuron.compute(audit.wrong)
        for hotkey in sorted(faulty):
            log.warning("round %d: %s signed for a part that its contributions do not give", window.round, hotkey)
        observed = [
            (c.hotkey, self._observation(finished, c, loss, c.hotkey not in faulty))
            for c, loss in zip(roster.commitments, losses, strict=True)
        ]
        self.table = observe(self.table, window.round, dict(observed), neuron.run.scoring)
        await asyncio.to_thread(scores.save, self._path, self.table)
        log.info("round %d: scored %s; held-out loss %.4f before", window.round, _told(dict(observed)), baseline)
        neuron.telemetry.event(
            "scores",
            round=window.round,
            held_out_loss=baseline,
            faulty=sorted(faulty),
            drops={hotkey: _finite(o.loss.held_out) if o.loss else None for hotkey, o in observed},
            own_drops={hotkey: _finite(o.loss.own) if o.loss else None for hotkey, o in observed},
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

    async def _contribution(self, finished: Finished, commitment: Commitment, deadline: float) -> torch.Tensor | None:
        """The committed pseudo-gradient as fp32, or None when it cannot be had or is not what was declared."""
        exchange, window = self.neuron.exchange, finished.round.window
        layout = exchange.scheme.layout

        def decode(leaves: Sequence[bytes]) -> torch.Tensor:
            delta = decode_part(exchange.scheme.codec, layout, leaves, 0, layout.num_leaves)
            if abs(norm(delta) - commitment.norm) > NORM_TOLERANCE * max(commitment.norm, 1e-12):
                raise BadRecord("declared norm differs from the contribution's")
            return delta

        try:
            return await self.neuron.compute(decode, await exchange.pull_contribution(window, commitment, deadline))
        except (FetchError, CodecError, BadRecord) as error:
            exchange.refusals.drop(window, commitment.hotkey, error)
            return None

    def _observation(
        self, finished: Finished, commitment: Commitment, loss: LossScore | None, honest: bool
    ) -> Observation:
        """Participation: share of the parts that hold it, halved unless what it had to reduce could be had as well.

        A reducer that is not `honest` gets nothing, whatever its contribution is worth.
        """
        update, hotkey = finished.update, commitment.hotkey
        results = update.results.values()
        averaged = hotkey in {c.hotkey for c in update.roster.mean}
        if not averaged:
            participation = 1.0 if loss is not None and loss is not WORTHLESS else 0.0
        elif not honest:
            participation = 0.0
        else:
            words = [part for part, by in update.words.items() if hotkey in by]
            reduced = bool(words) and not set(words) & set(update.missing)
            held = sum(hotkey in r.included for r in results) / max(1, len(results))
            participation = held * (1.0 if reduced else 0.5)
        return Observation(loss if honest else WORTHLESS, participation, digest_ok=hotkey in finished.agreed)

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
