"""The constants of scoring, measured on real training: copies, work, excess on own data, precision.

    python benchmarks/calibration.py

ROUNDS rounds of the demo's model by machines of unlike speed, with the product's own samples, codec and outer step.
After each round the same contributions are seen as a validator sees them, and again as a copier, an off-task trainer or
a validator of another precision would make them. About six minutes of one core.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from bench import Figures, budget, main, say

from subnet.config import load_run
from subnet.data.assignment import sample_ids
from subnet.data.prepare import prepare
from subnet.data.shards import Shards
from subnet.diloco.aggregate import norm
from subnet.diloco.codec import decode_part, encode_tree
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.inner import InnerTrainer
from subnet.diloco.layout import Layout
from subnet.diloco.outer import outer_step
from subnet.diloco.scheme import Scheme
from subnet.exchange.commitment import Commitment
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes
from subnet.neuron import MAX_UIDS
from subnet.scoring import copies, trained
from subnet.scoring.loss import LossScore, excess, paired, plausible
from subnet.scoring.table import WORK_EXPONENT
from subnet.validator.evaluate import Evaluator

SHARES = (1.0, 1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.25)
"""Of the inner steps, machine by machine."""
ROUNDS = 12
NOISE = 0.25
"""Of the length of what is copied."""
IN_BF16 = (1, 5, 9)
"""Rounds measured in bf16 as well, which a CPU is slow at."""
WARM = 2
"""Rounds of which the work is not compared: warm-up, where fewer steps are also smaller ones."""

Pairs = list[float]


class Machines:
    """Miners without a swarm: trainers, error feedback and the state they share."""

    def __init__(self, cache: Path) -> None:
        self.run = load_run("demo")
        self.shards: Shards = prepare(self.run.data, cache, self.run.model.seq_len)
        self.layout = Layout.of(parameter_shapes(self.run.model).items(), self.run.codec.leaf_size)
        self.scheme = Scheme.of(self.run, self.layout)
        self.theta = self.layout.flatten(init_theta(self.run.model, self.run.seed))
        self.momentum = torch.zeros_like(self.theta)
        train = self.run.train
        self.steps = [round(share * train.inner_steps) for share in SHARES]
        self.trainers = [InnerTrainer(build_model(self.run.model), train, self.layout) for _ in SHARES]
        self.owed = [ErrorFeedback(self.layout.numel, self.run.codec.error_feedback_decay) for _ in SHARES]

    def contributions(self, round_: int) -> list[torch.Tensor]:
        """What each machine sends, as everybody decodes it."""
        train, sent = self.run.train, []
        for uid, (trainer, steps, owed) in enumerate(zip(self.trainers, self.steps, self.owed, strict=True)):
            size, count = train.batch_size, train.inner_steps * train.batch_size
            ids = sample_ids(self.run.seed, self.shards.num_train, round_, uid, MAX_UIDS, count)
            batches = (self.shards.train(ids[i : i + size]) for i in range(0, count, size))
            trainer.load(self.theta)
            trainer.train(batches, steps, round_ * train.inner_steps, lambda: False)
            total = owed.add(self.theta - trainer.theta())
            leaves = encode_tree(self.scheme.codec, self.layout, total)
            sent.append(decode_part(self.scheme.codec, self.layout, leaves, 0, self.layout.num_leaves))
            owed.settle(sent[-1], [(0, self.layout.numel)])
        return sent

    def commitments(self, sent: list[torch.Tensor]) -> list[Commitment]:
        size = self.run.train.batch_size * self.run.model.seq_len
        return [
            Commitment(str(uid), b"r" * 32, norm(delta), steps * size, steps, b"s" * 32)
            for uid, (delta, steps) in enumerate(zip(sent, self.steps, strict=True))
        ]

    def step(self, mean: torch.Tensor) -> None:
        outer = self.run.outer
        self.theta, self.momentum = outer_step(
            self.theta, self.momentum, mean, outer.lr, outer.momentum, outer.nesterov
        )


def _likeness(sketches: np.ndarray, steps: list[int], seen: dict[str, Pairs]) -> None:
    """Partial correlations of honest pairs, among all and among any three of the full machines, and of copies."""
    off = np.triu_indices(len(sketches), 1)
    seen["honest_cosine"] += np.abs(copies.cosines(sketches))[off].tolist()
    seen["honest"] += np.abs(copies.partial_correlations(sketches, steps))[off].tolist()
    three = sketches[:3], steps[:3]
    seen["honest_of_three"] += np.abs(copies.partial_correlations(*three))[np.triu_indices(3, 1)].tolist()
    noise = np.random.default_rng(38).standard_normal(sketches.shape[1], dtype=np.float32)
    first, second = sketches[0], sketches[1]
    made = {
        "noised": first + noise * (NOISE * np.linalg.norm(first) / np.linalg.norm(noise)),
        "mixed_of_two": (first + second) / 2,
        "sign_flipped": -first,
    }
    for name, copy in made.items():
        both = np.vstack([sketches, copy[None]])
        seen[name].append(float(np.abs(copies.partial_correlations(both, [*steps, steps[0]]))[0, -1]))


async def measure() -> tuple[bool, Figures]:
    """Rounds played, then what was seen in them."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        machines = Machines(Path(cache))
        return _played(machines)


def _played(machines: Machines) -> tuple[bool, Figures]:
    run, layout = machines.run, machines.layout
    uids = {str(uid): uid for uid in range(len(SHARES))}
    away = {str(uid): uid + len(SHARES) for uid in range(len(SHARES))}
    evaluators = [Evaluator(run, machines.shards, layout, "cpu", MAX_UIDS, p) for p in (torch.float32, torch.bfloat16)]
    coordinates = torch.from_numpy(copies.coordinates(b"secret", layout.numel))
    names = ("honest_cosine", "honest", "honest_of_three", "noised", "mixed_of_two", "sign_flipped")
    alike: dict[str, Pairs] = {name: [] for name in names}
    news: Pairs = []
    work: dict[float, Pairs] = {share: [] for share in sorted(set(SHARES))}
    own: dict[str, Pairs] = {"own": [], "others": []}
    precision: Pairs = []
    odds: dict[str, float] = {}
    passed: dict[str, int] = {}
    before: np.ndarray | None = None
    for number in range(ROUNDS):
        sent = machines.contributions(number)
        listed = machines.commitments(sent)
        sketches = np.stack([delta[coordinates].numpy() for delta in sent])
        _likeness(sketches, machines.steps, alike)
        if before is not None:
            news += copies.unexplained(sketches, before).tolist()
        before = sketches
        mean = torch.stack(sent).mean(0)
        beacon = number.to_bytes(32, "big")
        clips = plausible([c.norm for c in listed], [c.steps for c in listed])
        scores: dict[str, dict[str, LossScore]] = {"own": {}, "others": {}}
        measured: list[list[tuple[float, float]]] = []
        views = [("own", uids, 0), ("others", away, 0), *([("own", uids, 1)] if number in IN_BF16 else [])]
        for kind, places, evaluator in views:
            judge = evaluators[evaluator]
            base = judge.begin(machines.theta, mean, beacon, number, places, listed)
            assert base.common_held_out is not None
            drops = []
            for c, delta, clip in zip(listed, sent, clips, strict=True):
                after_own, after_held_out = judge.measure(c.hotkey, delta, clip)
                held_out = base.held_out[: len(after_held_out)] - after_held_out
                mine = base.own[c.hotkey] - after_own
                more = excess(mine, held_out, base.common_own[c.hotkey], base.common_held_out[: len(held_out)])
                drops.append(paired(held_out, np.zeros_like(held_out)))
                if not evaluator:
                    zeros = np.zeros_like(mine)
                    scores[kind][c.hotkey] = LossScore(*paired(mine, zeros), *drops[-1], *more)
            measured.append(drops)
        if number >= WARM:
            for (drop, _), share in zip(measured[0], SHARES, strict=True):
                work[share].append(drop)
        for (drop, error), (other, _) in zip(measured[0], measured[2] if number in IN_BF16 else [], strict=False):
            precision.append(abs(drop - other) / error)
        for kind, found in scores.items():
            own[kind] += [score.excess / score.excess_se for score in found.values()]
        # Beside them one who is judged on data that it was not given.
        together = scores["own"] | {"off-task": scores["others"]["0"]}
        odds = trained.update(odds, together)
        for hotkey, value in odds.items():
            if abs(value) >= trained.PASSED:
                passed.setdefault(hotkey, number + 1)
        machines.step(mean)
        say(f"round {number + 1} of {ROUNDS}: loss {base.held_out.mean():.3f}, odds "
            + " ".join(f"{value:+.1f}" for value in odds.values()))  # fmt: skip
    honest = [h for h in odds if h != "off-task"]
    late = max(passed.get(h, ROUNDS + 1) for h in honest)
    full = statistics.mean(work[1.0])
    half = max(0.0, statistics.mean(work[0.5]) / full)
    costs = {
        "honest_pairs_most": budget(max(alike["honest"]), copies._ALIKE[-1]),
        "honest_pairs_of_three_most": budget(max(alike["honest_of_three"]), copies._ALIKE[1]),
        "evaluations_to_pass": budget(late, 10),
        "evaluations_to_fail": budget(passed.get("off-task", ROUNDS + 1), 10),
    }
    right = odds["off-task"] <= -trained.PASSED and all(odds[h] >= trained.PASSED for h in honest)
    return right and all(cost["ok"] for cost in costs.values()), {
        **costs,
        "honest_cosine_most": _short(max(alike["honest_cosine"])),
        "copies_partial_correlation": {n: _range(alike[n]) for n in ("noised", "mixed_of_two", "sign_flipped")},
        "unexplained_by_last_round": _range(news),
        "drop_by_share_of_steps": {share: _short(statistics.mean(drops) / full) for share, drops in work.items()},
        "work_from_half_the_steps": _short(half**WORK_EXPONENT),
        "excess_in_standard_errors": {kind: _range(values) for kind, values in own.items()},
        "bf16_off_in_standard_errors": {"median": _short(statistics.median(precision)), "most": _short(max(precision))},
        "rounds": ROUNDS,
        "pairs": len(alike["honest"]),
        "machines": len(SHARES),
    }  # fmt: skip


def _range(values: Pairs) -> list[float]:
    """Least, median and most."""
    return [_short(f(values)) for f in (min, statistics.median, max)]


def _short(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    sys.exit(main(measure))
