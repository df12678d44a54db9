"""Rounds of real training judged, tabled and paid as a validator does it: the honest earn, who works less earns less,
and free riders, copiers and off-task trainers do not."""

from __future__ import annotations

import pytest
import torch

from subnet.scoring.table import ScoreTable, observe
from subnet.scoring.trained import PASSED
from subnet.scoring.weights import weights

from .conftest import Swarm

HONEST = ("h0", "h1", "h2", "h3")


@pytest.mark.slow
def test_ten_rounds_of_honest_miners_and_free_riders(swarm: Swarm):
    full = swarm.run.train.inner_steps
    steps = {"half": full // 2}
    judge, table = swarm.judge(), ScoreTable()
    last: dict[str, torch.Tensor] = {}
    flagged: set[str] = set()
    for number in range(10):
        deltas = {name: swarm.train(uid, full) for uid, name in enumerate(HONEST)}
        deltas["half"] = swarm.train(4, full // 2)
        deltas["off task"] = swarm.train(5, full, data_of=15)
        noise = torch.randn(swarm.layout.numel, generator=torch.Generator().manual_seed(number))
        deltas["noise"] = swarm.sent(noise * deltas["h0"].std())
        deltas["zeros"] = torch.zeros(swarm.layout.numel)
        deltas["delayed"] = last.get("h0", deltas["zeros"])
        deltas["mixed"] = swarm.sent(last["h1"] + last["h2"]) if last else deltas["zeros"]
        deltas["turned"] = swarm.sent(-5 * last["h3"]) if last else deltas["zeros"]
        case = swarm.case(deltas, steps=steps)
        judgement = judge.begin(case)
        for commitment in judgement.wanted:
            judgement.hear(commitment, deltas[commitment.hotkey])
        for commitment in judgement.undecided():
            judgement.hear_again(commitment, deltas[commitment.hotkey])
        seen = judgement.observations()
        table = observe(table, number, seen, swarm.run.scoring)
        flagged |= {h for h in (*HONEST, "half") if seen[h].twins or seen[h].stale}
        assert number == 0 or all(seen[h].stale for h in ("delayed", "mixed", "turned"))
        last = deltas
        swarm.apply(case)
    assert flagged == set()
    paid = weights(table, {h: uid for uid, h in enumerate(last)}, swarm.run.scoring, None)
    shares = {h: paid.get(uid, 0.0) for uid, h in enumerate(last)}
    mean = sum(shares[h] for h in HONEST) / 4
    assert all(table.rows[h].trained >= PASSED for h in HONEST)
    assert all(0.6 * mean < shares[h] < 1.4 * mean for h in HONEST)
    assert 0.25 * mean < shares["half"] < 0.75 * mean
    for cheat in ("off task", "noise", "zeros", "delayed", "mixed", "turned"):
        assert shares[cheat] < 0.01 * mean
