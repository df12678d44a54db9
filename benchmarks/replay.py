"""The replay audit measured: what it costs a validator, whom it finds, and whether it ever accuses the honest.

    python benchmarks/replay.py

One miner of the demo's model trains ROUNDS rounds, every second one begun ahead of its outer parameters, as with
`rounds.delay`, and every segment of its steps is repeated as the validator does it: on the same build, with two
threads, in bf16. Then come rounds of which only a tenth to nine tenths are done and the rest made up in the best ways
we know, and others that save within a step; again every segment is repeated. About ten minutes of one core.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from bench import Figures, budget, main, say
from scoring_cost import a_round, judged

from subnet.config import RunConfig, load_run
from subnet.data.assignment import sample_ids
from subnet.data.prepare import prepare
from subnet.data.shards import Shards
from subnet.diloco.inner import InnerTrainer, evaluate
from subnet.diloco.layout import Layout
from subnet.exchange.commitment import Commitment
from subnet.miner.recording import Recorded, Recording
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes
from subnet.neuron import MAX_UIDS
from subnet.scoring.replay import DISTANCE, LOSS_GAP, Finding, caught, dearest, drawn, profit
from subnet.swarm.blobs import FetchError
from subnet.swarm.records import BadRecord
from subnet.validator.replay import Origin, Replay

STEPS, APART, ROUNDS, UID = 30, 3, 10, 7
LEVELS = [n / 10 for n in range(1, 10)]
DRAWS = 200_000
MAX_SHARE = 0.25
"""Of a validator's compute that audits may take at the run file's rate, on the demo's run."""
MAX_FALSE = 0.0


@dataclasses.dataclass
class Told:
    """A trainer's state as a cheat tells it: parameters of its own choice, and a step count that fits the trace."""

    trainer: InnerTrainer
    moved: torch.Tensor | None = None
    more: int = 0

    def theta(self) -> torch.Tensor:
        theta = self.trainer.theta()
        return theta if self.moved is None else theta + self.moved

    def state_dict(self) -> dict[str, torch.Tensor]:
        state = self.trainer.state_dict()
        return state | {"step": state["step"] + self.more} if state else state


class Player:
    """A miner without a swarm, for one round at a time; its outer parameters are what it trained itself."""

    def __init__(self, run: RunConfig, shards: Shards, folder: Path) -> None:
        self.run = run
        self.shards = shards
        self.layout = Layout.of(parameter_shapes(run.model).items(), run.codec.leaf_size)
        self.trainer = InnerTrainer(build_model(run.model), run.train, self.layout)
        self.theta = self.layout.flatten(init_theta(run.model, run.seed))
        self.folder = folder
        self.round = 0

    @property
    def origin(self) -> Origin:
        return Origin(self.round, self.round, self.theta)

    @property
    def first(self) -> int:
        """The global inner step of the round's first."""
        return self.round * self.run.train.inner_steps

    def batches(self, start: int = 0) -> Iterator[torch.Tensor]:
        size, count = self.run.train.batch_size, self.run.train.inner_steps * self.run.train.batch_size
        ids = sample_ids(self.run.seed, self.shards.num_train, self.round, UID, MAX_UIDS, count)
        return (self.shards.train(ids[i : i + size]) for i in range(start * size, count, size))

    def honest(self, ahead: int = 0) -> Recorded:
        """All steps; the first `ahead` of them before the outer parameters move, as with `rounds.delay`."""
        recording, losses = Recording(self.folder, self.layout), []
        outer, start = self.theta, self.theta + 1e-3 * torch.randn(self.layout.numel) if ahead else self.theta
        self.trainer.load(start)
        batches, at = self.batches(), 0
        while at < STEPS:
            if ahead and at == ahead:
                self.trainer.load(outer + (self.trainer.theta() - start))
                recording.join()
            recording.take(at, self.first + at, self.trainer)
            until = min(at + APART, STEPS, ahead if at < ahead else STEPS)
            losses += self.trainer.train(batches, until - at, self.first + at, lambda: False).trace
            at = until
        return _kept(recording.finish(losses, self.first + STEPS, self.trainer))

    def stopping(self, done: int, guess: bool) -> Recorded:
        """`done` steps; then only forward passes for the losses, and snapshots moved on along the last way.

        With `guess` not even these: losses around the last one.
        """
        recording, losses = Recording(self.folder, self.layout), []
        self.trainer.load(self.theta)
        told, before = Told(self.trainer, torch.zeros(self.layout.numel)), self.theta
        for at, batch in enumerate(self.batches()):
            if at % APART == 0:
                if at <= done:
                    way, before = self.trainer.theta() - before, self.trainer.theta()
                else:
                    told.moved = (at - done) / APART * way
                recording.take(at, self.first + at, told)  # type: ignore[arg-type]
            if at < done:
                losses += self.trainer.train([batch], 1, self.first + at, lambda: False).trace
                continue
            told.more += 1
            noise = 0.05 * float(torch.randn(()))
            losses.append(losses[-1] + noise if guess else self._forward(batch))
        return _kept(recording.finish(losses, self.first + STEPS, told))  # type: ignore[arg-type]

    def cheap(self, step: Callable[[torch.Tensor, int], None], every: int = 1) -> Recorded:
        """The right losses from forward passes at every step, and a cheaper `step(batch, at)` every so many."""
        recording, losses = Recording(self.folder, self.layout), []
        self.trainer.load(self.theta)
        told = Told(self.trainer)
        done = taken = int(self.trainer.state_dict()["step"])
        for at, batch in enumerate(self.batches()):
            if at % APART == 0:
                recording.take(at, self.first + at, told)  # type: ignore[arg-type]
            losses.append(self._forward(batch))
            done += 1
            if at % every == 0:
                step(batch, at)
                taken += 1
            told.more = done - taken
        return _kept(recording.finish(losses, self.first + STEPS, told))  # type: ignore[arg-type]

    def part(self, batch: torch.Tensor, at: int, samples: int) -> None:
        """A step on so many samples of its batch."""
        self.trainer.train([batch[:samples]], 1, self.first + at, lambda: False)

    def longer(self, batch: torch.Tensor, at: int) -> None:
        """One step in place of APART, as long as they are together."""
        before, trainer = self.trainer.theta(), self.trainer
        trainer.train([batch], 1, self.first + at, lambda: False)
        trainer.load(before + APART * (trainer.theta() - before))

    def _forward(self, batch: torch.Tensor) -> float:
        return float(evaluate(self.trainer.model, batch).mean())


class Validator:
    """Audits with other threads and another precision than the miner's."""

    def __init__(self, player: Player, threads: int, precision: torch.dtype) -> None:
        self.player = player
        self.threads = threads
        model = build_model(player.run.model)
        self.replay = Replay(player.run, player.shards, player.layout, model, MAX_UIDS, precision)
        self.seconds, self.audits = 0.0, 0

    async def every_segment(self, recorded: Recorded) -> list[Finding]:
        """One audit for each, by a beacon that draws it."""
        player, trace = self.player, recorded.trace
        commitment = Commitment("miner", b"r" * 32, 1.0, 1, trace.steps, b"s" * 32, trace=recorded.root)
        offers = {recorded.root: lambda _: recorded.packed} | {s.tree.root: s.leaf for s in recorded.snapshots}

        async def fetch(root: bytes, n: int, start: int, stop: int, sizes: Callable[[int], int]) -> Sequence[bytes]:
            if root not in offers:
                raise FetchError("unknown root")
            return [offers[root](leaf) for leaf in range(start, stop)]

        torch.set_num_threads(self.threads)
        found: dict[int, Finding] = {}
        number = 0
        while len(found) < len(trace.marks) - 1:
            beacon, number = number.to_bytes(32, "big"), number + 1
            started = time.process_time()
            try:
                piece = await self.replay.pull(commitment, beacon, player.origin, fetch)
                if piece.number in found:
                    continue
                found[piece.number] = self.replay.repeat(piece, UID, player.origin, lambda: False)
            except BadRecord as error:
                say(f"refused: {error}")
                return [Finding(False, str(error))] * (len(trace.marks) - 1)
            self.seconds += time.process_time() - started
            self.audits += 1
        torch.set_num_threads(1)
        return [found[n] for n in sorted(found)]


async def measure() -> tuple[bool, Figures]:
    """Honest rounds first, then cheats from the state they end in."""
    torch.set_num_threads(1)
    torch.manual_seed(38)
    demo = load_run("demo")
    run = dataclasses.replace(
        demo,
        train=dataclasses.replace(demo.train, inner_steps=STEPS),
        scoring=dataclasses.replace(demo.scoring, replay_steps=APART),
        rounds=dataclasses.replace(demo.rounds, delay=1),
    )
    with tempfile.TemporaryDirectory() as cache:
        shards = prepare(run.data, Path(cache), run.model.seq_len)
        player = Player(run, shards, Path(cache) / "replay")
        settings = {"same": (1, torch.float32), "two_threads": (2, torch.float32), "bf16": (1, torch.bfloat16)}
        validators = {name: Validator(player, *setting) for name, setting in settings.items()}
        honest: dict[str, list[Finding]] = {name: [] for name in settings}
        for number in range(ROUNDS):
            recorded = player.honest(ahead=10 if number % 2 else 0)
            for name, validator in validators.items():
                honest[name] += await validator.every_segment(recorded)
            say(f"honest round {number + 1} of {ROUNDS}: " + _range([f for fs in honest.values() for f in fs]))
            player.theta, player.round = player.trainer.theta(), player.round + 1
        inner = player.trainer.state_dict()
        cheats = {f"stops_after_{level:g}": (player.stopping, round(level * STEPS), False) for level in LEVELS}
        cheats |= {"guesses_after_0.5": (player.stopping, STEPS // 2, True)}  # type: ignore[dict-item]
        for samples in (4, 7):
            step = partial(player.part, samples=samples)
            cheats |= {f"{samples}_of_8_samples": (player.cheap, step, 1)}  # type: ignore[dict-item]
        cheats |= {"one_long_step_of_3": (player.cheap, player.longer, APART)}  # type: ignore[dict-item]
        found = {}
        for name, (play, *arguments) in cheats.items():
            player.trainer.load_state_dict(inner)
            findings = await validators["same"].every_segment(play(*arguments))  # type: ignore[operator]
            found[name] = sum(f.passed is False for f in findings) / len(findings)
            say(f"{name}: {found[name]:.2f} of the segments; {_range(findings)}")
        cost = _cost(demo, validators["same"], Path(cache))
    return _judged(run, honest, found, cost)


def _judged(
    run: RunConfig, honest: dict[str, list[Finding]], found: dict[str, float], cost: Figures
) -> tuple[bool, Figures]:
    everyone = [finding for findings in honest.values() for finding in findings]
    false = sum(finding.passed is not True for finding in everyone)
    rate, penalty = run.scoring.replay_rate, run.scoring.replay_penalty
    beacons = [n.to_bytes(32, "big") for n in range(DRAWS)]
    hit = sum(drawn(beacon, "miner", rate) for beacon in beacons) / DRAWS
    enough = all(found[f"stops_after_{level:g}"] >= 1 - level - 1e-9 for level in LEVELS)
    exact = [f.exact for f in honest["same"]]
    joins = ROUNDS // 2  # where outer parameters are put under the steps, the end is compared by distance only
    return false == 0 and enough and cost["share_of_validator"]["ok"], {
        "honest_audits": len(everyone),
        "false_alarms": budget(false / len(everyone), MAX_FALSE) if MAX_FALSE else false,
        "bit_equal_on_the_same_build": f"{sum(exact)} of {len(exact) - joins}",
        "most_of_the_bounds": {
            name: {"loss_gap": float(f"{max(f.loss_gap for f in fs) / LOSS_GAP:.3g}"),
                   "distance": float(f"{max(f.distance for f in fs) / DISTANCE:.3g}")}
            for name, fs in honest.items()
        },
        "found_if_audited": {name: round(share, 3) for name, share in found.items()},
        "audited": {"rate": rate, "drawn": round(hit, 5)},
        "found_a_round": {f"{level:g}": round(caught(level, rate), 4) for level in LEVELS},
        "profit_if_unseen": {
            f"{level:g}": round(profit(level, 1.0, 0.5, rate, penalty) / 0.5, 3) for level in LEVELS
        },
        "pays_up_to_a_cost_of": round(dearest(rate, penalty), 3),
        "cost": cost,
    }  # fmt: skip


def _cost(run: RunConfig, validator: Validator, cache: Path) -> Figures:
    """Of an audit beside the scoring of a miner, in CPU seconds, at the demo's own steps between snapshots."""
    audit = validator.seconds / validator.audits * run.scoring.replay_steps / APART
    case, leaves, judge = a_round(run, cache)
    score = min(judged(case, leaves, judge)["seconds_a_miner"] for _ in range(2))
    expected = run.scoring.replay_rate * audit
    return {
        "audit_seconds": float(f"{audit:.3g}"),
        "scoring_seconds_a_miner": float(f"{score:.3g}"),
        "share_of_validator": budget(expected / (expected + score), MAX_SHARE),
    }


def _kept(recorded: Recorded | None) -> Recorded:
    assert recorded is not None
    return recorded


def _range(findings: Sequence[Finding]) -> str:
    passed = [f for f in findings if f.passed]
    failed = [f for f in findings if not f.passed]
    text = f"{len(passed)} of {len(findings)} pass"
    for name, some in (("passed", passed), ("failed", failed)):
        if some:
            text += f"; {name}: loss gap {min(f.loss_gap for f in some):.2g} to {max(f.loss_gap for f in some):.2g}"
            text += f", distance {min(f.distance for f in some):.2g} to {max(f.distance for f in some):.2g}"
    return text


if __name__ == "__main__":
    sys.exit(main(measure))
