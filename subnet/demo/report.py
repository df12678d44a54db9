"""The end of the demo: is it a success, and the folder it leaves behind.

`metrics.jsonl` (every event of every neuron), `loss.png`, `model/` for `from_pretrained`, `summary.json`. The verdict
is measured afresh here, from the checkpoint of a validator, and not taken from what the neurons said.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subnet.config import RunConfig
from subnet.data.shards import Shards
from subnet.data.tokens import load_tokenizer
from subnet.demo.board import Board
from subnet.diloco import checkpoint
from subnet.diloco.inner import evaluate
from subnet.diloco.layout import Layout
from subnet.diloco.state import OuterState
from subnet.model.build import build_model
from subnet.model.export import export, sample
from subnet.neuron import CHECKPOINTS, genesis, layout_of

MIN_LOSS_FALL = 0.25
MAX_FREE_RIDER_SHARE = 0.05
HELD_OUT_SAMPLES = 256
PROMPTS = ("def ", "import ", "class ")
_PROMPTS_SAID = ", ".join(repr(prompt) for prompt in PROMPTS)


@dataclass(frozen=True)
class Summary:
    """What the demo achieved; `failures` is empty on success."""

    rounds: int
    outer_steps: int
    loss_before: float
    loss_after: float
    digest: str
    digests_differing: list[str]
    without_a_round: list[str]
    """Neurons that finished no round, whose state therefore nobody knows."""
    miner_shares: dict[str, float]
    free_rider_share: float
    bytes_up_per_round: dict[str, float]
    fp32_every_step_bytes: dict[str, float]
    samples: list[str]
    failures: list[str]

    @property
    def fall(self) -> float:
        return 1.0 - self.loss_after / self.loss_before


def conclude(board: Board, run: RunConfig, shards: Shards, out: Path) -> Summary:
    """Judge the run and write the folder. The final state is a validator's latest checkpoint."""
    layout = layout_of(run)
    first = genesis(run, layout)
    saved = max(
        (s for s in (checkpoint.load(seat.home / CHECKPOINTS, layout) for seat in board.seats) if s is not None),
        key=lambda s: s.state.step,
        default=None,
    )
    final = saved.state if saved is not None else first
    before, after = (_held_out_loss(run, shards, layout, state) for state in (first, final))
    digests = board.digests()
    common = Counter(digests.values()).most_common(1)[0][0] if digests else ""
    shares = board.miner_shares()
    free_rider = next((s.name for s in board.seats if s.role == "free-rider"), "")
    samples = _export(run, layout, final, out / "model")
    summary = Summary(
        rounds=len({e["round"] for s in board.seats for e in s.rounds}),
        outer_steps=final.step,
        loss_before=before,
        loss_after=after,
        digest=common,
        digests_differing=sorted(name for name, digest in digests.items() if digest != common),
        without_a_round=[seat.name for seat in board.seats if not seat.rounds],
        miner_shares=shares,
        free_rider_share=shares.get(free_rider, 0.0),
        bytes_up_per_round=_per_round(board),
        fp32_every_step_bytes=_all_reduce(board, layout.numel),
        samples=samples,
        failures=[],
    )
    summary.failures.extend(_failures(summary))
    end = (saved.meta["round"] + 1, after) if saved is not None else None
    figure(board.held_out(), end).savefig(out / "loss.png")
    (out / "summary.json").write_text(json.dumps({**asdict(summary), "fall": summary.fall}, indent=2) + "\n")
    with (out / "metrics.jsonl").open("w", encoding="utf-8") as merged:
        events = [(json.loads(raw)["time"], raw) for seat in board.seats for raw in _lines(seat.home / "metrics.jsonl")]
        merged.writelines(raw for _, raw in sorted(events))
    return summary


def figure(curve: list[tuple[int, float]], end: tuple[int, float] | None) -> Figure:
    """Held-out loss of the outer parameters over rounds; `end`: (round that would start with the final ones, loss).

    Rounds count from the first one that a validator measured.
    """
    chart = Figure(figsize=(7, 4), dpi=120)
    FigureCanvasAgg(chart)
    axes = chart.add_subplot()
    first = min((r for r, _ in [*curve, *([end] if end else [])]), default=0)
    if curve:
        xs, ys = [r - first for r, _ in curve], [loss for _, loss in curve]
        axes.plot(xs, ys, marker="o", color="#2a6fdb", label="a validator, at the start of a round")
    if end is not None:
        axes.plot([end[0] - first], [end[1]], "*", markersize=12, color="#d1495b", label="the final model, afresh")
    if curve or end:
        axes.legend()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel("held-out loss (nats per token)")
    axes.set_title("One model, trained by the whole swarm")
    axes.grid(alpha=0.3)
    chart.tight_layout()
    return chart


def text(summary: Summary, out: Path, seconds: float) -> str:
    """The summary as printed at the end, the verdict last; `seconds` is what all of it took."""
    shares = "  ".join(f"{name} {share:.1%}" for name, share in sorted(summary.miner_shares.items()))
    lines = [
        f"held-out loss  {summary.loss_before:.3f} -> {summary.loss_after:.3f}  ({summary.fall:.0%} lower)",
        f"rounds         {summary.rounds}, outer steps {summary.outer_steps}",
        f"state          {_state(summary)}",
        f"miner pay      {shares or 'none'}",
    ]
    for name, sent in sorted(summary.bytes_up_per_round.items()):
        full = summary.fp32_every_step_bytes.get(name, 0.0)
        ratio = f", {full / sent:.0f}x less than an fp32 all-reduce of every step" if full and sent else ""
        lines.append(f"sent           {name}: {sent / 1e6:.2f} MB a round{ratio}")
    lines += ["", f"what the model writes after {summary.outer_steps} outer steps, given {_PROMPTS_SAID}:"]
    lines += [*(f"  | {_printable(row)}" for s in summary.samples for row in s.splitlines()[:4]), ""]
    lines += [
        f"results        {out}  (loss.png, metrics.jsonl, summary.json, model/)",
        f"took           {seconds:.0f} s",
        "",
    ]
    if summary.failures:
        return "\n".join([*lines, *(f"FAILED: {reason}" for reason in summary.failures)])
    paid = f"{summary.free_rider_share:.1%}"
    verdict = (
        f"the loss fell by {summary.fall:.0%}, every neuron holds the same state, the free-rider got {paid} of the pay"
    )
    return "\n".join([*lines, f"PASSED: {verdict}"])


def _printable(row: str) -> str:
    """Without what a terminal would obey: an untrained model writes any byte."""
    return "".join(letter if letter.isprintable() else "\N{MIDDLE DOT}" for letter in row)


def _state(summary: Summary) -> str:
    if not summary.digest:
        return "none: no round was finished by every neuron"
    others = [*summary.digests_differing, *summary.without_a_round]
    return summary.digest[:16] + (f", but not by {', '.join(others)}" if others else " held by all")


def _failures(summary: Summary) -> list[str]:
    failures = []
    if summary.fall < MIN_LOSS_FALL:
        failures.append(f"held-out loss fell by {summary.fall:.1%}, less than {MIN_LOSS_FALL:.0%}")
    if not summary.digest:
        failures.append("no round was finished by every neuron")
    if summary.without_a_round:
        failures.append(f"finished no round: {', '.join(summary.without_a_round)}")
    if summary.digests_differing:
        failures.append(f"state digests differ: {', '.join(summary.digests_differing)}")
    if not summary.miner_shares:
        failures.append("no miner earned anything")
    if summary.free_rider_share > MAX_FREE_RIDER_SHARE:
        failures.append(f"the free-rider took {summary.free_rider_share:.1%} of the miners' emission")
    return failures


def _held_out_loss(run: RunConfig, shards: Shards, layout: Layout, state: OuterState) -> float:
    model = build_model(run.model)
    model.load_state_dict(layout.unflatten(state.theta), strict=False)
    ids = np.linspace(0, shards.num_held_out - 1, min(HELD_OUT_SAMPLES, shards.num_held_out)).astype(np.int64)
    losses = [evaluate(model, shards.held_out(ids[i : i + 32])) for i in range(0, len(ids), 32)]
    return float(np.concatenate(losses).mean())


def _export(run: RunConfig, layout: Layout, state: OuterState, folder: Path) -> list[str]:
    """Write the model, load it again as a user would, and let it write a few lines."""
    from transformers import LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = load_tokenizer(run.data.tokenizer, Path(run.data.path) if run.data.path else None)
    export(folder, run.model, layout.unflatten(state.theta), tokenizer)
    model = LlamaForCausalLM.from_pretrained(folder)
    return [prompt + sample(model, tokenizer, prompt, 96, seed=index) for index, prompt in enumerate(PROMPTS)]


def _per_round(board: Board) -> dict[str, float]:
    """Mean payload bytes a miner sent in a round it trained in."""
    sent = {s.name: [e["up"] for e in s.rounds if e.get("steps")] for s in board.seats if s.role == "miner"}
    return {name: sum(values) / len(values) for name, values in sent.items() if values}


def _all_reduce(board: Board, numel: int) -> dict[str, float]:
    """What a ring all-reduce of fp32 gradients at every inner step would have sent: 2 (N - 1) / N * 4 bytes * steps."""
    full: dict[str, float] = {}
    for seat in board.seats:
        rounds = [e for e in seat.rounds if e.get("steps") and e["averaged"]]
        if seat.role == "miner" and rounds:
            per = [2 * (e["averaged"] - 1) / e["averaged"] * 4 * numel * e["steps"] for e in rounds]
            full[seat.name] = sum(per) / len(per)
    return full


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
