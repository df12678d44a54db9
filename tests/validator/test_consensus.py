"""Honest validators on unlike machines agree: what Yuma makes of their weights after rounds of real training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from subnet.scoring.table import ScoreTable, observe
from subnet.scoring.weights import weights
from subnet.validator.evaluate import Evaluator
from subnet.validator.judgement import Case, Judge

from .conftest import MAX_UIDS, Swarm

U16 = 65_535


@dataclass
class Watcher:
    """A validator: how many threads it has, what it multiplies in, and which elements it sketches."""

    swarm: Swarm
    threads: int
    precision: torch.dtype
    secret: bytes
    table: ScoreTable = field(default_factory=ScoreTable)

    def __post_init__(self) -> None:
        run = self.swarm.run
        evaluator = Evaluator(run, self.swarm.shards, self.swarm.layout, "cpu", MAX_UIDS, self.precision)
        self.judge = Judge(self.swarm.scheme, evaluator, run, self.secret)

    def score(self, case: Case, deltas: dict[str, torch.Tensor]) -> None:
        torch.set_num_threads(self.threads)
        try:
            judgement = self.judge.begin(case)
            for commitment in judgement.wanted:
                judgement.hear(commitment, deltas[commitment.hotkey])
            for commitment in judgement.undecided():
                judgement.hear_again(commitment, deltas[commitment.hotkey])
            self.table = observe(self.table, case.round, judgement.observations(), self.swarm.run.scoring)
        finally:
            torch.set_num_threads(1)


@pytest.mark.slow
def test_honest_validators_on_unlike_machines_trust_each_other(swarm: Swarm, epoch_of: Callable[..., Any]):
    full = swarm.run.train.inner_steps
    watchers = [
        Watcher(swarm, 1, torch.float32, b"one"),
        Watcher(swarm, 2, torch.float32, b"two"),
        Watcher(swarm, 1, torch.bfloat16, b"three"),
    ]
    noise = torch.randn(swarm.layout.numel, generator=torch.Generator().manual_seed(0))
    trust = []
    for _ in range(6):
        deltas = {f"h{uid}": swarm.train(uid, full) for uid in range(3)}
        deltas["half"] = swarm.train(3, full // 2)
        deltas["off task"] = swarm.train(4, full, data_of=15)
        deltas["copy"] = swarm.sent(deltas["h0"] + 0.1 * deltas["h0"].std() * noise)
        deltas["noise"] = swarm.sent(noise * deltas["h0"].std())
        case = swarm.case(deltas, steps={"half": full // 2})
        for watcher in watchers:
            watcher.score(case, deltas)
        swarm.apply(case)
        uids = {hotkey: uid for uid, hotkey in enumerate(deltas)}
        rows = [weights(w.table, uids, swarm.run.scoring, None) for w in watchers]
        trust.append(epoch_of(rows, len(uids)).validator_trust[:3] / U16)
    assert len({tuple(row.items()) for row in map(dict, rows)}) > 1, "they measured with different arithmetic"
    assert min(each.min() for each in trust) > 0.99
