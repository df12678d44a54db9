"""A season: rounds of measured loss drops of honest and dishonest miners, folded into one score table."""

from collections.abc import Mapping

import numpy as np
import pytest

from subnet.config import ScoringConfig
from subnet.scoring.loss import LossScore, paired
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.scoring.weights import weights

SAMPLES = 16


class Season:
    """Miners are named by the mean loss drop of their contributions: 0.05 for an honest one, 0.0 for one of zeros,
    "noise" for a random direction of an honest norm: no first-order effect but luck, and harm to second order.
    Spreads are those measured on a 1 M parameter model: over samples as large as the drop, of noise a tenth."""

    def __init__(self, cfg: ScoringConfig, seed: int = 0) -> None:
        self.cfg, self.rng, self.table = cfg, np.random.default_rng(seed), ScoreTable()

    def drops(self, miner: float | str) -> np.ndarray:
        if miner == "noise":
            return self.rng.normal(-0.0005, 0.0008) + self.rng.normal(0, 0.003, SAMPLES)
        return self.rng.normal(miner, miner, SAMPLES)

    def measure(self, miner: float | str) -> LossScore:
        baseline = self.rng.normal(3.0, 0.5, SAMPLES)
        own, held_out = (paired(baseline, baseline - self.drops(miner)) for _ in range(2))
        return LossScore(*own, *held_out)

    def play(self, miners: Mapping[str, float | str], rounds: int) -> dict[str, float]:
        """Weights by hotkey after so many more rounds with these miners present."""
        for _ in range(rounds):
            seen = {hotkey: Observation(self.measure(miner), 1.0, True) for hotkey, miner in miners.items()}
            self.table = observe(self.table, self.table.round + 1, seen, self.cfg)
        return self.pay()

    def pay(self) -> dict[str, float]:
        hotkeys = sorted(self.table.rows)
        paid = weights(self.table, {hotkey: uid for uid, hotkey in enumerate(hotkeys)}, self.cfg, None)
        return {hotkeys[uid]: share for uid, share in paid.items()}


@pytest.fixture
def cfg() -> ScoringConfig:
    """What ships, so that these tests hold the defaults to what they promise."""
    return ScoringConfig()


@pytest.fixture
def season(cfg: ScoringConfig):
    """Seed -> a fresh Season."""
    return lambda seed=0: Season(cfg, seed)
