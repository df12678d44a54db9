"""The inner loop of DiLoCo: AdamW or Muon on local batches from given parameters, stopping when told.

Not bit-exact across machines (only what is averaged must be) and without a clock: the caller says when to stop. The
schedule follows the global inner step, so it does not depend on who trained how long. DiLoCo, arXiv 2311.08105.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from subnet.config import TrainConfig
from subnet.diloco.layout import Layout
from subnet.errors import UserError

MAX_SKIPPED_IN_A_ROW = 5
"""Inner steps without a finite loss and gradient after which training is given up."""
_IGNORED = -100
_MOMENTS = ("exp_avg", "exp_avg_sq")
_NOT_HIDDEN = ("embed_tokens.weight", "lm_head.weight")
"""Matrices that look tokens up or choose among them: Muon is for those in between."""


class TrainingDiverged(UserError):
    """Loss or gradient was not finite in several inner steps in a row."""


@dataclass
class InnerResult:
    """What was trained: optimizer `steps` taken, `tokens` in them, each step's mean loss in nats per token.

    `skipped` counts the steps that were left out because loss or gradient was not finite; `trace` is the loss of every
    batch that was tried, NaN where it was left out.
    """

    steps: int = 0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)
    skipped: int = 0
    trace: list[float] = field(default_factory=list)


def learning_rate(cfg: TrainConfig, step: int) -> float:
    """Linear warm-up from lr / warmup_steps, then a cosine that reaches lr * min_lr_ratio at `decay_steps`.

    `step` is the global inner step, from 0; the floor holds for ever after.
    """
    if step < cfg.warmup_steps:
        return cfg.lr * (step + 1) / cfg.warmup_steps
    progress = min(1.0, (step - cfg.warmup_steps) / (cfg.decay_steps - cfg.warmup_steps))
    cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
    return cfg.lr * (cfg.min_lr_ratio + (1.0 - cfg.min_lr_ratio) * cosine)


class InnerTrainer:
    """Trains a causal language model (`model(input_ids=...).logits`); the optimizer's moments live on between rounds.

    AdamW for everything, or with `train.optimizer` = "muon" torch's Muon for the hidden matrices, its update scaled to
    AdamW's root mean square (arXiv 2502.16982), so that one learning rate and one schedule serve both (MuLoCo, arXiv
    2505.23725).
    The model stays fp32 on its device; on CUDA the forward pass runs in bf16 autocast (`precision`).
    """

    def __init__(
        self, model: torch.nn.Module, cfg: TrainConfig, layout: Layout, precision: torch.dtype | None = None
    ) -> None:
        """Raises ValueError unless the model's parameters are those of the layout."""
        self.model = model
        self.cfg = cfg
        self.layout = layout
        self._named = dict(model.named_parameters())
        if {name: tuple(p.shape) for name, p in self._named.items()} != layout.shapes:
            raise ValueError("the model's parameters are not those of the layout")
        self._params = list(self._named.values())
        self._device = self._params[0].device
        self._precision = precision or (torch.bfloat16 if self._device.type == "cuda" else torch.float32)
        matrices = {name: p for name, p in self._named.items() if p.dim() >= 2}
        hidden = [p for n, p in matrices.items() if cfg.optimizer == "muon" and not n.endswith(_NOT_HIDDEN)]
        by_muon = set(map(id, hidden))
        groups = [
            {"params": [p for p in matrices.values() if id(p) not in by_muon], "weight_decay": cfg.weight_decay},
            {"params": [p for p in self._params if p.dim() < 2], "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas, eps=cfg.eps, fused=True)
        self._muon: torch.optim.Muon | None = None
        if hidden:
            self._muon = torch.optim.Muon(
                hidden,
                lr=cfg.lr,
                weight_decay=cfg.weight_decay,
                momentum=cfg.muon_momentum,
                adjust_lr_fn="match_rms_adamw",
            )

    @property
    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [self._adamw] if self._muon is None else [self._adamw, self._muon]

    def load(self, theta: Tensor) -> None:
        """Copy the flat fp32 vector `[numel]` into the model; the moments stay."""
        with torch.no_grad():
            for name, view in self.layout.unflatten(theta).items():
                self._named[name].copy_(view)

    def theta(self) -> Tensor:
        """The model's parameters as a new flat fp32 CPU vector `[numel]`."""
        return self.layout.flatten(self._named)

    def train(
        self, batches: Iterable[Tensor], max_steps: int, step0: int, should_stop: Callable[[], bool]
    ) -> InnerResult:
        """Train on `batches`, int64 `[B, T]` token ids each, one per step; the label of a token is its successor.

        Ends after `max_steps` batches, when there are no more, or before the step at which `should_stop()` is true.
        `step0` is the global inner step of the first one. A step whose loss or gradient is not finite is left out.

        Raises TrainingDiverged after MAX_SKIPPED_IN_A_ROW such steps; the parameters are those before the first.
        """
        result = InnerResult()
        in_a_row = 0
        self.model.train()
        for step, batch in zip(range(step0, step0 + max_steps), batches, strict=False):
            if should_stop():
                break
            loss = self._step(batch.to(self._device), learning_rate(self.cfg, step))
            result.trace.append(math.nan if loss is None else loss)
            if loss is None:
                result.skipped += 1
                in_a_row += 1
                if in_a_row == MAX_SKIPPED_IN_A_ROW:
                    raise TrainingDiverged(
                        f"training diverged: no finite loss in {in_a_row} inner steps in a row, up to global step "
                        f"{step}; start again from the swarm's state, and if that repeats lower train.lr"
                    )
                continue
            in_a_row = 0
            result.steps += 1
            result.tokens += batch.numel()
            result.losses.append(loss)
        return result

    def state_dict(self) -> dict[str, Tensor]:
        """AdamW's moments as flat fp32 `[numel]` vectors and its step count; empty before the first step.

        Muon's momentum is in the place of the first moment; it has no second, which is zero there.
        """
        if not self._adamw.state:
            return {}
        by_name = {name: self._state_of(p) for name, p in self._named.items()}
        flat = {key: self.layout.flatten({n: s[key] for n, s in by_name.items()}) for key in _MOMENTS}
        step = next(iter(self._adamw.state.values()))["step"]
        return {**flat, "step": step.to("cpu", torch.float32, copy=True)}

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` returned. Raises ValueError, with nothing changed, if it is another model's."""
        if saved and saved.keys() != {*_MOMENTS, "step"}:
            raise ValueError(f"not the state of an inner optimizer: {sorted(saved)}")
        views = {key: self.layout.unflatten(saved[key]) for key in _MOMENTS if saved}
        names = {id(p): name for name, p in self._named.items()}
        for optimizer in self._optimizers:
            ordered = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
            state: dict[int, dict[str, Any]] = {}
            for index, name in enumerate(ordered if saved else []):
                if optimizer is self._muon:
                    state[index] = {"momentum_buffer": views["exp_avg"][name].clone()}
                else:
                    state[index] = {key: views[key][name].clone() for key in _MOMENTS} | {"step": saved["step"].clone()}
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def _state_of(self, p: Tensor) -> Mapping[str, Tensor]:
        if self._muon is not None and p in self._muon.state:
            return {"exp_avg": self._muon.state[p]["momentum_buffer"], "exp_avg_sq": torch.zeros_like(p)}
        return dict(self._adamw.state[p])

    def _step(self, ids_BT: Tensor, lr: float) -> float | None:
        """One optimizer step; the mean loss, or None when it was left out."""
        loss = torch.zeros((), device=self._device)
        reduced = self._precision != torch.float32
        for part_bT in ids_BT.split(self.cfg.micro_batch):
            with torch.autocast(self._device.type, dtype=self._precision if reduced else None, enabled=reduced):
                logits_bTV = self.model(input_ids=part_bT).logits
            part = cross_entropy(logits_bTV.float().flatten(0, 1), _targets(part_bT)) * (len(part_bT) / len(ids_BT))
            part.backward()
            loss += part.detach()
        norm = torch.nn.utils.clip_grad_norm_(self._params, self.cfg.grad_clip)
        finite = bool(torch.isfinite(loss + norm))
        if finite:
            for optimizer in self._optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = lr
                optimizer.step()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        return float(loss) if finite else None


def evaluate(model: torch.nn.Module, tokens: Tensor) -> NDArray[np.float64]:
    """Mean loss of each sample in nats per token, fp64 `[B]`, of token ids int64 `[B, T]` in one forward pass.

    In the model's own precision. A loss that is not finite is returned as it is.
    """
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            ids_BT = tokens.to(next(model.parameters()).device)
            logits_BTV = model(input_ids=ids_BT).logits
            losses = cross_entropy(logits_BTV.float().flatten(0, 1), _targets(ids_BT), reduction="none")
            losses_BT = losses.double().view(ids_BT.shape)
            return (losses_BT.sum(1) / (ids_BT.shape[1] - 1)).cpu().numpy()
    finally:
        model.train(training)


def _targets(ids_BT: Tensor) -> Tensor:
    """Flat labels `[B * T]`: every token's successor; the last token of a sample has none."""
    return pad(ids_BT[:, 1:], (0, 1), value=_IGNORED).flatten()
