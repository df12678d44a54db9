"""A miner that keeps books: what it produced, what left its error feedback, what is still in it, and why.

The miner itself is the product's; its error feedback is read before and after each step. The books are saved with its
checkpoint, so they go back with it when it is killed.
"""

from __future__ import annotations

from typing import Any

import torch

from subnet.diloco.inner import InnerResult
from subnet.diloco.merkle import owned
from subnet.diloco.state import OuterState
from subnet.exchange.claims import Agreement
from subnet.exchange.commitment import Contribution
from subnet.exchange.round import Round, Update
from subnet.miner.loop import Miner

_BOOKS = ("produced", "owed", "taken")


class Trainer:
    """In the place of inner steps: parameters that somebody else made up, and the books to be saved with them."""

    def __init__(self, numel: int) -> None:
        self.local = torch.zeros(numel)
        self.books = {name: torch.zeros(numel, dtype=torch.float64) for name in _BOOKS}

    def theta(self) -> torch.Tensor:
        return self.local

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {name: book.clone() for name, book in self.books.items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.books = dict(state)


class BookkeepingMiner(Miner):
    """Tells, in a "settled" event a round, what left the error feedback and what the round looked like from here."""

    trainer: Trainer  # type: ignore[assignment]

    async def _round(self, round_: Round) -> None:
        self.index, self.root = round_.window.round, b""
        self.before = self.neuron.state.digest()
        await super()._round(round_)

    def contribute(self, result: InnerResult) -> Contribution | None:
        produced = self.neuron.state.theta - self.trainer.theta()
        contribution = super().contribute(result)
        if contribution is not None:
            self.trainer.books["produced"] += produced.double()
            self.root = owned(contribution.root, self.neuron.signer.ss58)
        return contribution

    def _as_it_is(self, update: Update | None, before: OuterState, agreement: Agreement) -> Update | None:
        self.agreed = agreement.agreed
        return super()._as_it_is(update, before, agreement)

    def settle(self, update: Update | None) -> None:
        sent = self._sent.clone() if self._sent is not None else torch.zeros(self.neuron.layout.numel)
        before = self.feedback.residual.clone()
        self._residuals = torch.zeros_like(sent)
        super().settle(update)
        taken = before - self.feedback.residual + self._residuals
        books = self.trainer.books
        books["owed"] += self._residuals.double()
        books["taken"] += before.double() - self.feedback.residual.double() + self._residuals.double()
        balance = books["produced"] + books["owed"] - books["taken"] - self.feedback.residual.double()
        self.neuron.telemetry.event(
            "settled",
            round=self.index,
            step=self.neuron.state.step,
            before=self.before.hex(),
            digest=self.neuron.state.digest().hex(),
            agreed=self.agreed,
            root=self.root.hex(),
            sent=float(sent.double().norm()),
            imbalance=float(balance.abs().max()),
            backlog=float(self.feedback.residual.double().norm()),
            view=self._view(update, sent, taken),
        )

    def _keep_residuals(self, update: Update) -> None:
        before = self.feedback.residual.clone()
        super()._keep_residuals(update)
        self._residuals = self.feedback.residual - before

    def _view(self, update: Update | None, sent: torch.Tensor, taken: torch.Tensor) -> dict[str, Any] | None:
        """The round from here: whose bytes are in which part, and how much of each part left the error feedback."""
        if update is None:
            return None
        layout, parts = self.neuron.layout, []
        for part, run in enumerate(update.roster.parts(layout)):
            first, last = layout.span(*run)
            result = update.results.get(part)
            parts.append(
                {
                    "included": sorted(result.included) if result is not None else [],
                    "missing": part in update.missing,
                    "sent": float(sent[first:last].double().norm()),
                    "taken": float(taken[first:last].double().norm()),
                }
            )
        listed = {commitment.hotkey: commitment.root.hex() for commitment in update.roster.mean}
        return {"roster": update.roster.root.hex(), "listed": listed, "parts": parts}
