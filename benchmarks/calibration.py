"""The constants of scoring, measured on real training: copies, work, excess on own data, precision.

    python benchmarks/calibration.py

ROUNDS rounds of the demo's model by machines of unlike speed, in the arena's world, judged by the validator's own code:
as they are, as if on data that they were not given, and in some rounds in bf16. Copies are made of the sketches that
the validator keeps. About ten minutes of one core.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from bench import Figures, budget, main, say

from subnet.attack.season import judged
from subnet.attack.world import MAX_UIDS, Move, Played, World
from subnet.config import load_run
from subnet.data.prepare import prepare
from subnet.scoring import copies, trained
from subnet.scoring.loss import LossScore
from subnet.scoring.table import WORK_EXPONENT
from subnet.validator.evaluate import Evaluator
from subnet.validator.judgement import Judge

STEPS = (15, 15, 15, 11, 11, 8, 8, 4)
"""Inner steps of each machine; the first three do all, as the run has them."""
ROUNDS = 12
NOISE = 0.25
"""Of the length of what is copied."""
IN_BF16 = (1, 5, 9)
"""Rounds judged in bf16 as well, which a CPU is slow at."""
WARM = 2
"""Rounds of which the work is not compared: warm-up, where fewer steps are also smaller ones."""
MAX_EVALUATIONS = 10

HOTKEYS = [f"machine-{i}" for i in range(len(STEPS))]
UIDS = {hotkey: uid for uid, hotkey in enumerate(HOTKEYS)}
AWAY = {hotkey: uid + len(STEPS) for hotkey, uid in UIDS.items()}
"""Uids whose data none of the machines was given."""
OFF_TASK = "off-task"
COPIES = ("noised", "mixed_of_two", "sign_flipped")

Losses = Mapping[str, LossScore]


@dataclass
class Seen:
    """What was measured so far."""

    alike: dict[str, list[float]] = field(default_factory=lambda: {n: [] for n in ("honest", "of_three", *COPIES)})
    cosines: list[float] = field(default_factory=list)
    news: list[float] = field(default_factory=list)
    drops: dict[int, list[float]] = field(default_factory=lambda: {steps: [] for steps in sorted(set(STEPS))})
    excess: dict[str, list[float]] = field(default_factory=lambda: {"own": [], "others": []})
    bf16: list[float] = field(default_factory=list)
    odds: dict[str, float] = field(default_factory=dict)
    decided: dict[str, int] = field(default_factory=dict)
    """Evaluations until the odds of a hotkey first passed the test, either way."""

    def likeness(self, sketches: copies.Sketches) -> None:
        """Of honest pairs, among all and among the full machines, and of copies of the first machine."""
        among = {"honest": (sketches, STEPS), "of_three": (sketches[:3], STEPS[:3])}
        for name, (some, steps) in among.items():
            partial = np.abs(copies.partial_correlations(some, steps))
            self.alike[name] += partial[np.triu_indices(len(some), 1)].tolist()
        self.cosines += np.abs(copies.cosines(sketches))[np.triu_indices(len(sketches), 1)].tolist()
        first, second = sketches[0], sketches[1]
        noise = np.random.default_rng(38).standard_normal(len(first), dtype=np.float32)
        scaled = noise * (NOISE * np.linalg.norm(first) / np.linalg.norm(noise))
        for name, copy in zip(COPIES, (first + scaled, (first + second) / 2, -first), strict=True):
            partial = copies.partial_correlations(np.vstack([sketches, copy[None]]), [*STEPS, STEPS[0]])
            self.alike[name].append(abs(float(partial[0, -1])))

    def losses(self, number: int, own: Losses, others: Losses) -> None:
        """Of a round's contributions on their own data and on others'; one machine is met again as off-task."""
        for name, losses in (("own", own), ("others", others)):
            self.excess[name] += [loss.excess / loss.excess_se for loss in losses.values()]
        if number >= WARM:
            for hotkey, steps in zip(HOTKEYS, STEPS, strict=True):
                self.drops[steps].append(own[hotkey].held_out)
        self.odds = trained.update(self.odds, {**own, OFF_TASK: others[HOTKEYS[0]]})
        for hotkey, odds in self.odds.items():
            if abs(odds) >= trained.PASSED:
                self.decided.setdefault(hotkey, number + 1)

    def figures(self) -> tuple[bool, Figures]:
        never = ROUNDS + 1
        limits = {
            "honest_pairs_most": budget(max(self.alike["honest"]), copies.ALIKE[-1]),
            "honest_pairs_of_three_most": budget(max(self.alike["of_three"]), copies.ALIKE[1]),
            "evaluations_to_pass": budget(max(self.decided.get(h, never) for h in HOTKEYS), MAX_EVALUATIONS),
            "evaluations_to_fail": budget(self.decided.get(OFF_TASK, never), MAX_EVALUATIONS),
        }
        right = self.odds[OFF_TASK] <= -trained.PASSED and min(self.odds[h] for h in HOTKEYS) >= trained.PASSED
        mean = {
            steps: statistics.mean(drops) / statistics.mean(self.drops[STEPS[0]]) for steps, drops in self.drops.items()
        }
        return right and all(limit["ok"] for limit in limits.values()), {
            **limits,
            "honest_cosine_most": _short(max(self.cosines)),
            "copies_partial_correlation": {name: _range(self.alike[name]) for name in COPIES},
            "unexplained_by_last_round": _range(self.news),
            "drop_by_steps": {steps: _short(share) for steps, share in mean.items()},
            "work_by_steps": {steps: _short(max(0.0, share) ** WORK_EXPONENT) for steps, share in mean.items()},
            "excess_in_standard_errors": {name: _range(values) for name, values in self.excess.items()},
            "bf16_off_in_standard_errors": _range(self.bf16),
            "rounds": ROUNDS,
            "machines": len(STEPS),
        }


async def measure() -> tuple[bool, Figures]:
    """Rounds played and judged, then what was seen in them."""
    torch.set_num_threads(1)
    run = load_run("demo")
    with tempfile.TemporaryDirectory() as cache:
        world = World(run, prepare(run.data, Path(cache), run.model.seq_len))
        judges = {
            name: Judge(world.scheme, Evaluator(run, world.shards, world.layout, "cpu", MAX_UIDS, kind), run, b"one")
            for name, kind in (("own", torch.float32), ("others", torch.float32), ("bf16", torch.bfloat16))
        }
        seen, before = Seen(), None
        for number in range(ROUNDS):
            moves = {h: Move(world.train(h, world.batches(UIDS[h]), n), n) for h, n in zip(HOTKEYS, STEPS, strict=True)}
            played = world.play(moves, {})
            own = _losses(judges["own"], world, played, UIDS, number)
            seen.losses(number, own, _losses(judges["others"], world, played, AWAY, number))
            if number in IN_BF16:
                coarse = _losses(judges["bf16"], world, played, UIDS, number)
                seen.bf16 += [abs(own[h].held_out - coarse[h].held_out) / own[h].held_out_se for h in HOTKEYS]
            sketches = np.stack([judges["own"].sketches[hotkey] for hotkey in HOTKEYS])
            seen.likeness(sketches)
            if before is not None:
                seen.news += copies.unexplained(sketches, before).tolist()
            before = sketches
            odds = " ".join(f"{seen.odds[hotkey]:+.1f}" for hotkey in (*HOTKEYS, OFF_TASK))
            say(f"round {number + 1} of {ROUNDS}: loss {world.loss():.3f}, odds {odds}")
    return seen.figures()


def _losses(judge: Judge, world: World, played: Played, uids: Mapping[str, int], number: int) -> dict[str, LossScore]:
    found = {hotkey: o.loss for hotkey, o in judged(judge, world, played, uids, number).items()}
    return {hotkey: loss for hotkey, loss in found.items() if loss is not None}


def _range(values: list[float]) -> list[float]:
    """Least, median and most."""
    return [_short(f(values)) for f in (min, statistics.median, max)]


def _short(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    sys.exit(main(measure))
