"""A miner's round loop, in the order of the protocol on paper.

    train -> commit -> roster -> scatter and reduce -> gather -> outer step and agreement -> settle, checkpoint

Outer parameters and momentum are the swarm's; the inner optimizer's moments and the error feedback are this miner's
own. DiLoCo: arXiv 2311.08105.
"""

from __future__ import annotations

import asyncio
import logging

import torch

from subnet.diloco.aggregate import norm
from subnet.diloco.codec import decode_part, encode_tree
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.inner import InnerResult
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.diloco.state import OuterState
from subnet.exchange.butterfly import carry_factor
from subnet.exchange.claims import Agreement
from subnet.exchange.commitment import Contribution, norm_limit
from subnet.exchange.round import Round, Update
from subnet.miner.training import Training
from subnet.neuron import Neuron

log = logging.getLogger(__name__)

_MARGIN = 0.9
"""How much of the longest norm that others accept is used: the codec's rounding may add to it."""


class Miner:
    """Trains and averages until the neuron is told to stop; a crash at any point costs it the current round."""

    def __init__(self, neuron: Neuron, training: Training | None = None) -> None:
        self.neuron = neuron
        self.training = training or Training(neuron)
        self.trainer = self.training.trainer
        self.feedback = ErrorFeedback(neuron.layout.numel, neuron.run.codec.error_feedback_decay)
        self._sent: torch.Tensor | None = None
        self._restore()

    async def run(self) -> None:
        """The loop; returns when the neuron is stopping, after the exchange it has committed to."""
        try:
            async for round_ in self.neuron.rounds():
                await self._round(round_)
        finally:
            await self.training.close()

    async def _round(self, round_: Round) -> None:
        neuron, exchange = self.neuron, self.neuron.exchange
        neuron.enter("train", round_)
        result = await self.training.round(round_)
        if neuron.stopping.is_set():
            return
        recorded = self.training.recorded
        # Nothing of this round leaves the machine before the last one is on disk: a crash costs one round, not two.
        await neuron.saved(round_.window.train_end)
        contribution = await asyncio.to_thread(self.contribute, result)
        if neuron.run.rounds.delay:
            self.training.begin_ahead(round_)
        neuron.enter("commit", round_)
        state = neuron.state.digest()
        if contribution is not None and not await exchange.commit(round_, contribution, state):
            log.warning("round %d: too late to commit; the work is kept for the next", round_.window.round)
        neuron.enter("roster", round_)
        roster = await exchange.agree_on_roster(round_, contribution, state)
        if recorded is not None:
            recorded.offer(neuron.swarm.store, round_.window)
        update: Update | None = None
        if roster is not None:
            neuron.enter("scatter", round_)
            reduced = await exchange.reduce(round_, roster)
            neuron.enter("gather", round_)
            update = await exchange.gather(round_, roster, reduced)
            self._tell_if_unreachable(update)
        neuron.enter("apply", round_)
        before = neuron.state
        agreement = await neuron.finish(round_, update)
        known = update
        if known is None and self._sent is not None and not agreement.agreed:
            known = await exchange.leadership.hindsight(round_, state)
        self.settle(self._as_it_is(known, before, agreement))
        await neuron.save(round_, self.feedback.residual, self.trainer.state_dict)
        seconds = self.training.seconds
        neuron.report(round_, update, agreement, _told(result, seconds), **_training(result, seconds, contribution))

    def _tell_if_unreachable(self, update: Update) -> None:
        own, results = self.neuron.signer.ss58, update.results.values()
        if own in {c.hotkey for c in update.roster.mean} and results and not any(own in r.included for r in results):
            log.warning(
                "round %d: no reducer could fetch this miner's contribution; if this machine cannot be dialled (NAT "
                "without a forwarded port), start it with --swarm.unreachable", update.roster.round,
            )  # fmt: skip

    def contribute(self, result: InnerResult) -> Contribution | None:
        """Pseudo-gradient plus error feedback through the codec; None when not a single step was done."""
        if result.steps == 0:
            self._sent = None
            return None
        neuron = self.neuron
        codec, layout = neuron.exchange.scheme.codec, neuron.layout
        total = self.feedback.add(neuron.state.theta - self.trainer.theta())
        leaves = encode_tree(codec, layout, _shortened(total, _MARGIN * norm_limit(neuron.run)))
        self._sent = decode_part(codec, layout, leaves, 0, layout.num_leaves)
        trace = self.training.recorded.root if self.training.recorded else b""
        return Contribution(leaves, Tree(hash_leaves(leaves)), norm(self._sent), result.tokens, result.steps, trace)

    def _as_it_is(self, update: Update | None, before: OuterState, agreement: Agreement) -> Update | None:
        """The round as it is in the state that this miner goes on from; None when nothing of it is known to be.

        A peer that others outvoted, and that could not fetch one step beyond `before`, rather sends again than loses.
        """
        neuron = self.neuron
        if update is None or agreement.agreed:
            return update
        if not agreement.repaired_leaves or neuron.state.step != before.step + 1:
            return None
        return update.in_state(before.momentum, neuron.state.momentum, neuron.run.outer.momentum, neuron.layout)

    def settle(self, update: Update | None) -> None:
        """Keep in the error feedback whatever the round, as it is in this miner's state, did not take of its work."""
        if self._sent is None:
            return
        own, layout = self.neuron.signer.ss58, self.neuron.layout
        carried = update.carried(own, layout) if update is not None else []
        if update is not None and self.neuron.exchange.scheme.selective:
            self._sent[update.left_out(own, layout)] = 0.0
        self.feedback.settle(self._sent, carried)
        self._sent = None
        if update is not None:
            self._keep_residuals(update)

    def _keep_residuals(self, update: Update) -> None:
        """Owe what the output codec lost of the parts this miner reduced, if it is its word that was followed."""
        own, layout = self.neuron.signer.ss58, self.neuron.layout
        for reduced in update.reduced:
            result = update.results.get(reduced.part)
            if reduced.part in update.missing or result is None or result.reducer != own:
                continue  # the whole part is still owed, or another has the same residual and keeps it
            start, stop = layout.span(*update.roster.parts(layout)[reduced.part])
            factor = carry_factor(update.roster, reduced.included, own)
            self.feedback.add_range(start, stop, reduced.residual * factor)

    def _restore(self) -> None:
        saved, self.neuron.resumed = self.neuron.resumed, None
        if saved is not None and saved.feedback is not None:
            self.feedback.load(saved.feedback)
            self.trainer.load_state_dict(saved.inner)


def _shortened(x: torch.Tensor, longest: float) -> torch.Tensor:
    """`x` scaled down to the L2 norm `longest`, if it is above; what that leaves out stays in the error feedback."""
    length = norm(x)
    return x if length <= longest else x * (longest / length)


def _told(result: InnerResult, seconds: float) -> str:
    """What a miner's log line says of its training."""
    if result.steps == 0:
        return "not a single inner step done"
    loss = f"loss {result.losses[-1]:.3f} after " if result.losses else ""
    rate = f", {result.tokens / seconds:,.0f} tokens/s" if seconds else ""
    return f"{loss}{result.steps} inner steps{rate}"


def _training(result: InnerResult, seconds: float, contribution: Contribution | None) -> dict[str, float | int | None]:
    """What a miner's ``round`` event says of its training; losses are nats a token."""
    return {
        "loss": result.losses[-1] if result.losses else None,
        "steps": result.steps,
        "tokens": result.tokens,
        "seconds": round(seconds, 3),
        "norm": contribution.norm if contribution else None,
    }
