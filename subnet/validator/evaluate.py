"""Loss measurements of one round's contributions from the state they were trained from.

Which samples judge whom follows from a block hash after the commit deadline, so nobody could choose them, and every
honest validator measures the same. Holds the model and no other copy of its parameters; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
from subnet.scoring.loss import apply_fraction

Losses = NDArray[np.float64]


@dataclass
class Baseline:
    """What is measured once a round: losses before any contribution, and what the round's common update does to them.

    `held_out`: float64 [samples_held_out], nats a token; `own`: float64 [samples_own] by hotkey. `common_held_out` and
    `common_own` are the drops, on the same samples, of a step along the update that was averaged of all; None without.
    """

    held_out: Losses
    own: dict[str, Losses]
    common_held_out: Losses | None = None
    common_own: dict[str, Losses] = field(default_factory=dict)


class Evaluator:
    """Evaluates steps from `theta` on token samples. The parameters are loaded once per state that is looked at.

    The model is fp32; its matrix products are bf16 on CUDA (`precision`), as in training. Of a drop that changes a
    hundredth of its standard error, and honest validators agree on either (docs/scoring.md).
    """

    def __init__(
        self,
        run: RunConfig,
        shards: Shards,
        layout: Layout,
        device: str,
        max_uids: int,
        precision: torch.dtype | None = None,
    ) -> None:
        self.run = run
        self.shards = shards
        self.layout = layout
        self.max_uids = max_uids
        self.model = build_model(run.model, device)
        self._kind = torch.device(device).type
        self._precision = precision or (torch.bfloat16 if self._kind == "cuda" else torch.float32)

    @property
    def first(self) -> int:
        """How many of the held-out samples everybody is measured on; the others decide what these leave open."""
        return max(2, len(self.held_out_ids) // 2)

    def begin(
        self,
        theta: torch.Tensor,
        common: torch.Tensor | None,
        beacon: bytes,
        round_index: int,
        uids: Mapping[str, int],
        commitments: Sequence[Commitment],
    ) -> Baseline:
        """Fix the round's samples and measure what all contributions are compared with.

        `theta`, `common`: fp32 of the layout's size, neither is changed; `uids` must have every owner.
        """
        scoring = self.run.scoring
        self.theta = theta
        self.held_out_ids = held_out_ids(beacon, self.shards.num_held_out, scoring.samples_held_out)
        self._own = {c.hotkey: self._own_ids(c, uids[c.hotkey], beacon, round_index) for c in commitments}
        self.load(None, 0.0)
        before = Baseline(self._held_out(0, None), {hotkey: self._own_losses(hotkey) for hotkey in self._own})
        if common is not None:
            self.load(common, scoring.eval_lr)
            before.common_held_out = before.held_out - self._held_out(0, None)
            before.common_own = {h: losses - self._own_losses(h) for h, losses in before.own.items()}
        return before

    def measure(self, hotkey: str, delta: torch.Tensor, clip: float) -> tuple[Losses, Losses]:
        """Losses after a step of `eval_lr * clip` along a contribution: on its own and on the `first` held-out samples.

        `delta`: fp32 of the layout's size.
        """
        self.load(delta, self.run.scoring.eval_lr * clip)
        return self._own_losses(hotkey), self._held_out(0, self.first)

    def measure_rest(self, delta: torch.Tensor, clip: float) -> Losses:
        """The same on the held-out samples that `measure` left out."""
        self.load(delta, self.run.scoring.eval_lr * clip)
        return self._held_out(self.first, None)

    def load(self, delta: torch.Tensor | None, factor: float) -> None:
        """theta - factor * delta into the model, one tensor at a time: no copy of all parameters is made."""
        with torch.no_grad():
            views = self.layout.unflatten(self.theta)
            steps = None if delta is None else self.layout.unflatten(delta)
            for name, parameter in self.model.named_parameters():
                moved = views[name] if steps is None else apply_fraction(views[name], steps[name], factor)
                parameter.copy_(moved)

    def _own_ids(self, commitment: Commitment, uid: int, beacon: bytes, round_index: int) -> NDArray[np.int64]:
        """A draw from the samples of the inner steps that were declared."""
        train = self.run.train
        per_round = train.inner_steps * train.batch_size
        trained = sample_ids(self.run.seed, self.shards.num_train, round_index, uid, self.max_uids, per_round)
        return own_ids(beacon, trained[: commitment.steps * train.batch_size], self.run.scoring.samples_own)

    def _own_losses(self, hotkey: str) -> Losses:
        return self._losses(self.shards.train(self._own[hotkey]))

    def _held_out(self, start: int, stop: int | None) -> Losses:
        ids = self.held_out_ids[start:stop]
        return self._losses(self.shards.held_out(ids)) if len(ids) else np.empty(0)

    def _losses(self, tokens: torch.Tensor) -> Losses:
        reduced = self._precision != torch.float32
        with torch.autocast(self._kind, dtype=self._precision if reduced else None, enabled=reduced):
            batches = _split(tokens, self.run.train.micro_batch)
            return np.concatenate([evaluate(self.model, batch) for batch in batches])


def _split(tokens: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]
