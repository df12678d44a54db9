"""The inner loop with Muon on the hidden matrices and AdamW on the rest: MuLoCo, arXiv 2505.23725.

Not an optimizer of our own: torch's, with the update scaled to AdamW's root mean square (arXiv 2502.16982), so that one
learning rate and one schedule serve both.
"""

from __future__ import annotations

from typing import Any

import torch

from subnet.config import TrainConfig
from subnet.diloco.inner import InnerTrainer
from subnet.diloco.layout import Layout

MOMENTUM = 0.95
_NOT_HIDDEN = ("embed_tokens.weight", "lm_head.weight")


class MuonTrainer(InnerTrainer):
    """`InnerTrainer` with another optimizer; it does not save or restore its state."""

    def __init__(self, model: torch.nn.Module, cfg: TrainConfig, layout: Layout) -> None:
        super().__init__(model, cfg, layout)
        hidden = [p for name, p in self._named.items() if p.dim() == 2 and not name.endswith(_NOT_HIDDEN)]
        matrices = [p for name, p in self._named.items() if name.endswith(_NOT_HIDDEN)]
        groups = [
            {"params": matrices, "weight_decay": cfg.weight_decay},
            {"params": [p for p in self._params if p.dim() < 2], "weight_decay": 0.0},
        ]
        self._adamw = _Both(  # type: ignore[assignment]
            torch.optim.Muon(
                hidden, lr=cfg.lr, weight_decay=cfg.weight_decay, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas, eps=cfg.eps, fused=True),
        )


class _Both:
    """Two optimizers that step together, with the groups of both."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self._optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        for optimizer in self._optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad()
