"""Run one cell: M miners of the real inner loop in one process, or DDP on the same samples, and its held-out loss.

Not parallel and not timed: only tokens, losses and bytes are of interest. What is evaluated are the outer parameters.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quality_study.cells import LOCAL_BATCH, WORKERS, Cell, codec_config
from quality_study.exchange import average, contribute, ring_bytes
from subnet.data.assignment import held_out_ids, sample_ids
from subnet.data.shards import Shards
from subnet.diloco.codec import codec_of
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.inner import InnerTrainer, evaluate
from subnet.diloco.layout import Layout
from subnet.diloco.outer import outer_step
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes

HELD_OUT_SAMPLES = 512
"""The same for every cell, of a model's sequence length each."""
EVALUATIONS = 6
_EVAL_BATCH = 32


class Judge:
    """Held-out loss of flat parameters, nats a token."""

    def __init__(self, cell: Cell, layout: Layout, shards: Shards) -> None:
        ids = held_out_ids(b"quality", shards.num_held_out, HELD_OUT_SAMPLES)
        self._samples = shards.held_out(ids)
        self._model = build_model(cell.model_config)
        self._named = dict(self._model.named_parameters())
        self._layout = layout
        self.losses: list[tuple[int, float]] = []
        self._every = cell.steps / EVALUATIONS
        self._steps = cell.steps

    def see(self, theta: Tensor, step: int) -> None:
        """Note the loss after `step` inner steps, if one is due."""
        due = (len(self.losses) + 1) * self._every
        if step < min(due, self._steps):
            return
        with torch.no_grad():
            for name, view in self._layout.unflatten(theta).items():
                self._named[name].copy_(view)
        parts = [evaluate(self._model, batch) for batch in self._samples.split(_EVAL_BATCH)]
        self.losses.append((step, round(float(np.concatenate(parts).mean()), 5)))


def run(cell: Cell, shards: Shards) -> dict[str, Any]:
    """Train as the cell says: held-out losses as (inner step, nats a byte), bytes sent per miner, CPU seconds."""
    started = time.process_time()
    layout = Layout(parameter_shapes(cell.model_config), codec_config(cell.codec).leaf_size)
    judge = Judge(cell, layout, shards)
    theta = layout.flatten(init_theta(cell.model_config, cell.seed))
    workers = 1 if cell.method == "alone" else WORKERS
    if cell.method == "diloco":
        scatter, gather = _diloco(cell, layout, shards, theta, judge)
    else:
        scatter = gather = cell.steps * ring_bytes(layout.numel, workers) / 2  # reduce-scatter, then all-gather
        _joint(cell, layout, shards, theta, judge, workers)
    return {
        "losses": judge.losses,
        "parameters": layout.numel,
        "tokens": cell.steps * workers * LOCAL_BATCH * shards.seq_len,
        "scatter_bytes": round(scatter),
        "gather_bytes": round(gather),
        "ring_bytes": round(cell.steps * ring_bytes(layout.numel, WORKERS)),
        "cpu_seconds": round(time.process_time() - started, 1),
        "data": shards.manifest_hash[:16],
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _joint(cell: Cell, layout: Layout, shards: Shards, theta: Tensor, judge: Judge, workers: int) -> None:
    """One trainer on the samples of `workers`: what DDP computes, which averages every gradient."""
    trainer = _trainer(cell, layout, workers * LOCAL_BATCH)
    trainer.load(theta)
    every = [_batches(cell, shards, uid, 0, cell.steps) for uid in range(workers)]
    joint = (torch.cat(batches) for batches in zip(*every, strict=True))
    for step in range(cell.steps):
        trainer.train(joint, 1, step, _never)
        if (step + 1) % (cell.steps // EVALUATIONS) == 0 or step + 1 == cell.steps:
            judge.see(trainer.theta(), step + 1)


def _diloco(cell: Cell, layout: Layout, shards: Shards, theta: Tensor, judge: Judge) -> tuple[float, float]:
    """Rounds of H inner steps of every miner, its averaging, and the outer step.

    With `cell.ahead`, as in `subnet.miner.training`: so many of the next round's steps go from where the miner's own
    parameters are, and what they changed is put on top of the new outer parameters.
    """
    codec, reduced = codec_of(codec_config(cell.codec)), codec_of(codec_config(cell.reduced))
    trainers = [_trainer(cell, layout, LOCAL_BATCH) for _ in range(WORKERS)]
    feedbacks = [ErrorFeedback(layout.numel, cell.decay) for _ in range(WORKERS)]
    momentum = torch.zeros_like(theta)
    changed = [torch.zeros_like(theta) for _ in range(WORKERS)]
    scatter, gather, tokens = 0.0, 0.0, cell.h * LOCAL_BATCH * shards.seq_len

    def train(uid: int, step: int, count: int) -> None:
        trainers[uid].train(_batches(cell, shards, uid, step, count), count, step, _never)

    for step in range(0, cell.steps, cell.h):
        contributions, done = [], cell.ahead if step else 0
        for uid, (trainer, feedback) in enumerate(zip(trainers, feedbacks, strict=True)):
            trainer.load(theta + changed[uid])
            train(uid, step + done, cell.h - done)
            own = trainer.theta()
            contributions.append(contribute(codec, layout, feedback, theta - own, tokens))
            if step + cell.h < cell.steps:
                train(uid, step + cell.h, cell.ahead)
                changed[uid] = trainer.theta() - own
        averaged = average(layout, contributions, reduced, cell.over, cell.kept_by)
        for feedback, owed in zip(feedbacks, averaged.owed, strict=True):
            feedback.add_range(0, layout.numel, owed)
        theta, momentum = outer_step(theta, momentum, averaged.delta, cell.outer_lr, cell.momentum)
        scatter += averaged.scatter_bytes
        gather += averaged.gather_bytes
        judge.see(theta, step + cell.h)
    return scatter, gather


def _trainer(cell: Cell, layout: Layout, batch_size: int) -> InnerTrainer:
    return InnerTrainer(build_model(cell.model_config), cell.train_config(batch_size), layout)


def _batches(cell: Cell, shards: Shards, uid: int, step: int, count: int) -> Iterator[Tensor]:
    """The samples of `uid` for `count` inner steps from `step` on: the same whatever H is."""
    for number in range(step, step + count):
        yield shards.train(sample_ids(cell.seed, shards.num_train, number, uid, WORKERS, LOCAL_BATCH))


def _never() -> bool:
    return False
