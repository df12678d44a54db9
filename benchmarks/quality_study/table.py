"""The study's results as Markdown: mean and spread over seeds, the gap to DDP, bytes and their factor against DDP.

Not a judge of significance: the spread is the sample standard deviation, and a gap pairs runs of the same seed, which
share initial parameters and data.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quality_study.cells import Cell

Results = Mapping[Cell, Mapping[str, Any]]
_HEAD = ("inner (lr)", "H", "rounds", "outer (lr, momentum)", "codec", "mean over; kept by; decay")
_MEASURED = ("seeds", "held-out loss", "against DDP", "MB sent", "DDP's bytes, times")


def final(result: Mapping[str, Any]) -> float:
    """Held-out loss after the last step, nats a byte."""
    return float(result["losses"][-1][1])


def sent(result: Mapping[str, Any]) -> int:
    """Bytes each miner sends in the whole run; it receives as many."""
    return int(result["scatter_bytes"] + result["gather_bytes"])


def codec_gap(results: Results, codec: str, seeds: Sequence[int]) -> float:
    """Largest relative excess of the codec's loss over fp32's, of cells alike in all else that ran all `seeds`.

    The mean over the seeds; infinite if there are no such cells.
    """
    gaps = []
    for cell in {replace(cell, seed=0) for cell in results if cell.codec == cell.reduced == codec}:
        coded = [results.get(replace(cell, seed=seed)) for seed in seeds]
        plain = [results.get(replace(cell, codec="fp32", reduced="fp32", seed=seed)) for seed in seeds]
        pairs = [(final(c), final(p)) for c, p in zip(coded, plain, strict=True) if c is not None and p is not None]
        if len(pairs) == len(seeds):
            gaps.append(statistics.mean(c / p - 1.0 for c, p in pairs))
    return max(gaps, default=float("inf"))


def tables(results: Results) -> str:
    """One table per model and length of training, best mean first within a number of seeds."""
    lengths = dict.fromkeys((cell.model, cell.steps) for cell in results)
    return "\n\n".join(_table({c: r for c, r in results.items() if (c.model, c.steps) == each}) for each in lengths)


def baseline(results: Results) -> Cell:
    """The DDP cell, without its seed, whose AdamW learning rate ends lowest with the first seed. Raises ValueError."""
    ddp = [cell for cell in results if (cell.method, cell.inner) == ("ddp", "adamw")]
    if not ddp:
        raise ValueError("there is no DDP run to compare with")
    first = min(cell.seed for cell in ddp)
    return replace(min((c for c in ddp if c.seed == first), key=lambda c: final(results[c])), seed=0)


def _table(results: Results) -> str:
    """The cells of one model and length."""
    groups: dict[Cell, list[Cell]] = {}
    for cell in results:
        groups.setdefault(replace(cell, seed=0), []).append(cell)
    reference = baseline(results)
    some, result = next(iter(results.items()))
    rows = sorted(groups.items(), key=lambda item: (-len(item[1]), _mean(results, item[1])))
    size = f"{result['parameters']:,} parameters, {some.steps} steps, {result['tokens']:,} tokens"
    lines = [f"### {some.model}: {size}", ""]
    lines += [_row((*_HEAD, *_MEASURED)), _row(["---"] * len((*_HEAD, *_MEASURED)))]
    lines += [_row((*_settings(cell), *_figures(results, members, reference))) for cell, members in rows]
    return "\n".join(lines)


def _settings(cell: Cell) -> tuple[str, ...]:
    inner = f"{cell.inner} {cell.lr:g}"
    if cell.method == "ddp":
        return inner, "-", str(cell.steps), "DDP", "fp32 gradients", "-"
    if cell.method == "alone":
        return inner, "-", "-", "one miner alone", "-", "-"
    codec = cell.codec if cell.codec == cell.reduced else f"{cell.codec}, reduced {cell.reduced}"
    rules = "-" if codec == "fp32" else f"{cell.over}; {cell.kept_by}; {cell.decay:g}"
    steps = f"{cell.h}, {cell.ahead} ahead" if cell.ahead else str(cell.h)
    return inner, steps, str(cell.steps // cell.h), f"{cell.outer_lr:g}, {cell.momentum:g}", codec, rules


def _figures(results: Results, cells: Sequence[Cell], reference: Cell) -> tuple[str, ...]:
    losses = [final(results[c]) for c in cells]
    spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
    pairs = [(final(results[c]), results.get(replace(reference, seed=c.seed))) for c in cells]
    gaps = [loss / final(ddp) - 1.0 for loss, ddp in pairs if ddp is not None]
    gap = f"{100 * statistics.mean(gaps):+.1f} %" if gaps else "-"
    bytes_sent = statistics.mean(sent(results[c]) for c in cells)
    factor = f"{results[cells[0]]['ring_bytes'] / bytes_sent:,.0f}" if bytes_sent else "-"
    return str(len(cells)), f"{statistics.mean(losses):.4f}{spread}", gap, f"{bytes_sent / 1e6:.3g}", factor


def _mean(results: Results, cells: Sequence[Cell]) -> float:
    return statistics.mean(final(results[c]) for c in cells)


def _row(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |"
