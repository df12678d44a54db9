"""Loss measurements of one round's contributions from the state they were trained from.

Which samples judge whom follows from a block hash after the commit deadline, so nobody could choose them, and every
honest validator measures the same. Holds the model and one copy of its parameters; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from subnet.config import RunConfig
from subnet.data.assignment import held_out_ids, own_ids, sample_ids
from subnet.data.shards import Shards
from subnet.diloco.inner import evaluate
from subnet.diloco.layout import Layout
from subnet.exchange.commitment import Commitment
from subnet.model.build import build_model
from subnet.scoring.loss import LossScore, apply_fraction, paired


class Evaluator:
    """Evaluates flat fp32 parameter vectors on token samples; `held_out_loss` is the round's one baseline."""

    def __init__(self, run: RunConfig, shards: Shards, layout: Layout, device: str, max_uids: int) -> None:
        self.run = run
        self.shards = shards
        self.layout = layout
        self.max_uids = max_uids
        self.model = build_model(run.model, device)

    def begin(self, theta: torch.Tensor, beacon: bytes, round_index: int) -> float:
        """Fix the round's samples and measure the baseline on held-out data; returns its mean loss in nats a token."""
        self.theta, self.beacon, self.round = theta, beacon, round_index
        ids = held_out_ids(beacon, self.shards.num_held_out, self.run.scoring.samples_held_out)
        self.held_out = self.shards.held_out(ids)
        self.held_out_before = self._losses(theta, self.held_out)
        return float(self.held_out_before.mean())

    def measure(self, commitment: Commitment, uid: int, delta: torch.Tensor, clip: float) -> LossScore:
        """What a step of `eval_lr * clip` along the decoded contribution does to its own and to held-out data."""
        scoring = self.run.scoring
        trained = sample_ids(
            self.run.seed,
            self.shards.num_train,
            self.round,
            uid,
            self.max_uids,
            self.run.train.inner_steps * self.run.train.batch_size,
        )[: commitment.steps * self.run.train.batch_size]
        own = self.shards.train(own_ids(self.beacon, trained, scoring.samples_own))
        own_before = self._losses(self.theta, own)
        moved = apply_fraction(self.theta, delta, scoring.eval_lr * clip)
        own_drop, own_error = paired(own_before, self._losses(moved, own))
        held_drop, held_error = paired(self.held_out_before, self._losses(moved, self.held_out))
        return LossScore(own_drop, own_error, held_drop, held_error)

    def _losses(self, theta: torch.Tensor, tokens: torch.Tensor) -> NDArray[np.float64]:
        self._load(theta)
        return np.concatenate([evaluate(self.model, batch) for batch in _split(tokens, self.run.train.micro_batch)])

    def _load(self, theta: torch.Tensor) -> None:
        with torch.no_grad():
            views = self.layout.unflatten(theta)
            for name, parameter in self.model.named_parameters():
                parameter.copy_(views[name])


def _split(tokens: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]
