"""A season: rounds of measured loss drops of honest and dishonest miners, folded into one score table."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from subnet.config import ScoringConfig
from subnet.scoring.loss import LossScore, excess, paired
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.scoring.weights import weights

OWN, HELD_OUT = 16, 32
DROP, EXCESS = 0.05, 0.02
FULL = 1000
"""Tokens of a full round."""


@dataclass(frozen=True)
class Miner:
    """`work`: share of a full round's inner steps that it does; the drop goes with its power 0.8. `own`: share of its
    declared samples that it trained on. `declares`: share of a full round, its work unless said. `noise`: a random
    direction of an honest norm instead: no first-order effect but luck, and harm to second order."""

    work: float = 1.0
    own: float = 1.0
    declares: float | None = None
    noise: bool = False
    participation: float = 1.0
    twins: frozenset[str] = frozenset()
    stale: bool = False


HONEST, HALF, ZEROS, NOISE = Miner(), Miner(work=0.5), Miner(work=0.0, own=0.0, declares=1.0), Miner(noise=True, own=0)
COPIER = Miner(own=0.0)
"""Somebody else's good gradient, from data that it was not assigned."""


class Season:
    """Spreads are those measured on a 1 M parameter model: over samples as large as the drop, mostly of the sample and
    common to all contributions; of noise a tenth. Training on a sample itself drops its loss by 40 % more."""

    def __init__(self, cfg: ScoringConfig, seed: int = 0) -> None:
        self.cfg, self.rng, self.table = cfg, np.random.default_rng(seed), ScoreTable()

    def drops(self, miner: Miner, learnable: np.ndarray) -> np.ndarray:
        if miner.noise:
            return self.rng.normal(-0.0005, 0.0008) + self.rng.normal(0, 0.003, len(learnable))
        if not miner.work:
            return np.zeros(len(learnable))
        drop = DROP * miner.work**0.8 * self.rng.normal(1.0, 0.05)
        return drop * (learnable + self.rng.normal(0, 0.3, len(learnable)))

    def measure(self, miner: Miner, held_out: np.ndarray) -> LossScore:
        own = self.rng.normal(1.0, 1.0, OWN)
        own_drops, held_drops = self.drops(miner, own), self.drops(miner, held_out)
        own_drops = own_drops + EXCESS * (self.rng.random(OWN) < miner.own) * self.rng.normal(1.0, 0.5, OWN)
        more = excess(own_drops, held_drops, DROP * own, DROP * held_out)
        return LossScore(*_paired(own_drops), *_paired(held_drops), *more)

    def observe(self, miners: Mapping[str, Miner]) -> dict[str, Observation]:
        held_out = self.rng.normal(1.0, 1.0, HELD_OUT)
        return {
            hotkey: Observation(
                self.measure(miner, held_out), miner.participation, True,
                round(FULL * (miner.work if miner.declares is None else miner.declares)), miner.twins, miner.stale,
            )
            for hotkey, miner in miners.items()
        }  # fmt: skip

    def play(self, miners: Mapping[str, Miner], rounds: int) -> dict[str, float]:
        """Weights by hotkey after so many more rounds with these miners present."""
        for _ in range(rounds):
            self.table = observe(self.table, self.table.round + 1, self.observe(miners), self.cfg)
        return self.pay()

    def pay(self) -> dict[str, float]:
        hotkeys = sorted(self.table.rows)
        paid = weights(self.table, {hotkey: uid for uid, hotkey in enumerate(hotkeys)}, self.cfg, None)
        return {hotkeys[uid]: share for uid, share in paid.items()}


def _paired(drops: np.ndarray) -> tuple[float, float]:
    return paired(np.full(len(drops), 3.0), 3.0 - drops)


@pytest.fixture
def cfg() -> ScoringConfig:
    """What ships, so that these tests hold the defaults to what they promise."""
    return ScoringConfig()


@pytest.fixture
def season(cfg: ScoringConfig):
    """Seed -> a fresh Season."""
    return lambda seed=0: Season(cfg, seed)
