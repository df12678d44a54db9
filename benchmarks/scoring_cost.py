"""What scoring costs: a round judged by the validator's own code, in units of the forward passes that it cannot spare.

    python benchmarks/scoring_cost.py

MINERS contributions of the demo's model, trained a few steps each, encoded, and then judged from their leaves as a
validator does it, on one thread. A miner's own forward passes are those on its own samples (before it, after it, after
the round's common update) and on held-out ones after it. All else is overhead: the round's baseline, decoding, moving
parameters, sketches, copies, the audit. For 1 B parameters, forward passes are counted in FLOP, since this machine has
no accelerator, and what goes with the number of parameters is scaled.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from bench import Figures, budget, main, say
from torch.profiler import ProfilerActivity, profile

import subnet.validator.evaluate as evaluation
from subnet.config import RunConfig, load_run
from subnet.data.assignment import sample_ids
from subnet.data.prepare import prepare
from subnet.diloco.aggregate import norm
from subnet.diloco.codec import decode_part, encode_tree
from subnet.diloco.inner import InnerTrainer, evaluate
from subnet.diloco.layout import Layout
from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import PartResult, decoded, reduce
from subnet.exchange.commitment import Commitment
from subnet.exchange.roster import Roster
from subnet.exchange.round import Update
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes
from subnet.neuron import MAX_UIDS
from subnet.validator.evaluate import Evaluator
from subnet.validator.judgement import Case, Judge, opened

MINERS, STEPS, REPEATS = 16, 2, 3
MAX_TIMES = 1.15
BIG, BIG_MINERS, BIG_SECONDS = "1b", 64, 20 * 60.0
GPU_TFLOPS = 100.0
"""What one data-centre GPU sustains in bf16 forward passes: a third of an A100's 312, an eighth of an H100's 989."""


class Stopwatch:
    """CPU seconds spent in the forward passes, while `evaluate` is its own."""

    def __init__(self) -> None:
        self.seconds, self.samples = 0.0, 0

    def __call__(self, model: torch.nn.Module, tokens: torch.Tensor) -> np.ndarray:
        start = time.process_time()
        losses = evaluate(model, tokens)
        self.seconds += time.process_time() - start
        self.samples += len(tokens)
        return losses


async def measure() -> tuple[bool, Figures]:
    """The cheapest of REPEATS rounds, what scales with the parameters, and the 1 B estimate."""
    torch.set_num_threads(1)
    run = load_run("demo")
    with tempfile.TemporaryDirectory() as cache:
        case, leaves, judge = a_round(run, Path(cache))
        rounds = []
        for number in range(REPEATS):
            rounds.append(judged(case, leaves, judge))
            say(f"run {number + 1} of {REPEATS}: " + ", ".join(f"{k} {v:.4g}" for k, v in rounds[-1].items()))
        best = min(rounds, key=lambda figures: figures["times_of_its_forward_passes"])
        held = _held(case, leaves, judge)
    numel = judge.scheme.layout.numel
    costs = {"times_of_its_forward_passes": budget(best["times_of_its_forward_passes"], MAX_TIMES)}
    memory = {"copies_of_the_parameters": budget(held / (4 * numel), 2.0)}
    big = _big(best, numel)
    ok = all(f["ok"] for f in (*costs.values(), *memory.values(), big["seconds_of_a_round"]))
    shape = {"miners": MINERS, "parameters": numel, "samples_own": run.scoring.samples_own,
             "samples_held_out": run.scoring.samples_held_out}  # fmt: skip
    return ok, {**shape, **{k: float(f"{v:.4g}") for k, v in best.items()}, **costs, **memory, "1b": big}


def a_round(run: RunConfig, cache: Path) -> tuple[Case, dict[str, list[bytes]], Judge]:
    """MINERS contributions to one round, reduced by all of them, and a judge."""
    shards = prepare(run.data, cache, run.model.seq_len)
    layout = Layout.of(parameter_shapes(run.model).items(), run.codec.leaf_size)
    scheme = Scheme.of(run, layout)
    theta = layout.flatten(init_theta(run.model, run.seed))
    model, train = build_model(run.model), run.train
    deltas, leaves, commitments = [], {}, []
    for uid in range(MINERS):
        trainer = InnerTrainer(model, train, layout)
        ids = sample_ids(run.seed, shards.num_train, 0, uid, MAX_UIDS, train.inner_steps * train.batch_size)
        trainer.load(theta)
        batches = (shards.train(ids[i : i + train.batch_size]) for i in range(0, len(ids), train.batch_size))
        trainer.train(batches, STEPS, 0, lambda: False)
        hotkey, tokens = f"miner-{uid}", STEPS * train.batch_size * run.model.seq_len
        leaves[hotkey] = encode_tree(scheme.codec, layout, theta - trainer.theta())
        deltas.append(decode_part(scheme.codec, layout, leaves[hotkey], 0, layout.num_leaves))
        commitments.append(Commitment(hotkey, b"r" * 32, norm(deltas[-1]), tokens, STEPS, b"s" * 32))
    update = _reduced(scheme, Roster(0, "", b"r" * 32, b"s" * 32, tuple(commitments), MINERS), deltas)
    uids = {c.hotkey: uid for uid, c in enumerate(commitments)}
    case = Case(0, theta, update, frozenset(uids), uids, b"b" * 32, b"a" * 32)
    return case, leaves, Judge(scheme, Evaluator(run, shards, layout, "cpu", MAX_UIDS), run, b"k" * 32)


def _reduced(scheme: Scheme, roster: Roster, deltas: list[torch.Tensor]) -> Update:
    update = Update(roster, torch.empty(scheme.layout.numel))
    for part, (start, stop) in enumerate(roster.parts(scheme.layout)):
        first, last = scheme.layout.span(start, stop)
        made = reduce(scheme, roster, part, [decoded(scheme.layout, x[first:last], start) for x in deltas])
        update.delta[first:last] = decode_part(scheme.reduced, scheme.layout, made.leaves, start, stop)
        everybody = frozenset(c.hotkey for c in roster.mean)
        word = PartResult(part, roster.mean[part].hotkey, made.root, roster.root, everybody)
        update.words[part], update.results[part] = {word.reducer: word}, word
    return update


def judged(case: Case, leaves: dict[str, list[bytes]], judge: Judge) -> dict[str, float]:
    """One round judged: what it cost, in CPU seconds."""
    watch = Stopwatch()
    evaluation.evaluate = watch  # type: ignore[assignment]
    try:
        start = time.process_time()
        judgement = judge.begin(case)
        for commitment in judgement.wanted:
            assert judgement.hear_leaves(commitment, leaves[commitment.hotkey]) is None
        again = judgement.undecided()
        for commitment in again:
            judgement.hear_leaves_again(commitment, leaves[commitment.hotkey])
        seen = judgement.observations()
        seconds = time.process_time() - start
    finally:
        evaluation.evaluate = evaluate
    assert len(seen) == MINERS and not judgement.faulty()
    shared = 2 * len(judge.evaluator.held_out_ids)
    forwards = watch.seconds * (watch.samples - shared) / watch.samples
    return {
        "times_of_its_forward_passes": seconds / forwards,
        "seconds_a_miner": seconds / MINERS,
        "forward_share": watch.seconds / seconds,
        "samples_a_miner": (watch.samples - shared) / MINERS,
        "looked_at_again": len(again) / MINERS,
    }


def _held(case: Case, leaves: dict[str, list[bytes]], judge: Judge) -> float:
    """The most bytes that torch holds at once of what opening a contribution and stepping along it allocates."""
    commitment = case.update.roster.commitments[0]

    def step() -> torch.Tensor:
        delta = opened(judge.scheme, commitment, leaves[commitment.hotkey])
        judge.evaluator.load(delta, 0.5)
        return delta

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))


def _big(figures: dict[str, float], numel: int) -> Figures:
    """A round of BIG_MINERS of the 1 B run: forward passes by their FLOP, all else by seconds a parameter, as here."""
    run = load_run(BIG)
    parameters = sum(math.prod(shape) for shape in parameter_shapes(run.model).values())
    scoring, model = run.scoring, run.model
    samples = BIG_MINERS * (3 * scoring.samples_own + 0.75 * scoring.samples_held_out) + 2 * scoring.samples_held_out
    layers, width = model.num_layers, model.hidden_size
    flop = samples * model.seq_len * (2 * parameters + 2 * layers * model.seq_len * width)
    forward = flop / (GPU_TFLOPS * 1e12)
    rest = BIG_MINERS * figures["seconds_a_miner"] * (1 - figures["forward_share"]) * parameters / numel
    return {
        "parameters": parameters, "miners": BIG_MINERS, "petaflop": round(flop / 1e15, 1), "at_tflops": GPU_TFLOPS,
        "forward_seconds": round(forward, 1), "other_seconds_one_core": round(rest, 1),
        "seconds_of_a_round": budget(forward + rest, BIG_SECONDS),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(measure))
