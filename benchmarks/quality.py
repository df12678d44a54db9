"""Which codec, H, outer and inner optimizer a run should have: held-out loss at equal tokens, against bytes sent.

    python benchmarks/quality.py               run the cells that docs/quality.jsonl does not have yet
    python benchmarks/quality.py --seconds 600 begin no further cell after ten minutes
    python benchmarks/quality.py --table       print what docs/quality.md shows of them

Four miners in one process and one thread, on the real pure layer (inner loop, codecs, error feedback, aggregation,
outer step) and the embedded corpus; against DDP on the same samples with its learning rate tuned. A cell that is in the
file is never run again, so whoever wants to check one deletes its line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bench import ROOT, Figures, budget, main, say
from quality_study.cells import DATA, MODELS, Cell
from quality_study.grid import SEEDS, cells
from quality_study.simulate import run
from quality_study.table import codec_gap, tables

from subnet.data.prepare import prepare
from subnet.errors import UserError
from subnet.home import shards_folder

RESULTS = ROOT / "docs" / "quality.jsonl"
MAX_INT4_GAP = 0.01
"""Largest relative loss that int4 may cost against fp32, all else equal, every seed's mean."""


async def measure(seconds: float = float("inf")) -> tuple[bool, Figures]:
    """Run what is missing, and say whether compression still costs what it did."""
    torch.set_num_threads(1)
    started = time.monotonic()
    wanted = cells()
    shards = {name: prepare(DATA, shards_folder(), int(shape["seq_len"])) for name, shape in MODELS.items()}
    for number, cell in enumerate(wanted):
        if cell in read(RESULTS):
            continue
        if time.monotonic() - started > seconds:
            raise UserError(f"{sum(c not in read(RESULTS) for c in wanted)} of {len(wanted)} cells are still to run")
        result = run(cell, shards[cell.model])
        with RESULTS.open("a") as stream:
            stream.write(json.dumps({"cell": dataclasses.asdict(cell), **result}) + "\n")
        say(f"{number + 1}/{len(wanted)} {cell}: {result['losses'][-1][1]:.4f}, {result['cpu_seconds']} s")
    figure = budget(codec_gap(read(RESULTS), "int4", SEEDS), MAX_INT4_GAP)
    return figure["ok"], {"cells": len(wanted), "int4_gap_to_fp32": figure}


def read(path: Path) -> dict[Cell, dict[str, Any]]:
    """Finished cells and their results. Raises UserError for a line that is none."""
    results = {}
    if path.exists():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                entry = json.loads(line)
                results[Cell(**entry.pop("cell"))] = entry
            except (ValueError, TypeError, KeyError) as e:
                raise UserError(f"{path}:{number} is not a result of this study; delete the line") from e
    return results


def _main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the tables instead of running anything")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further cell after this long")
    args = parser.parse_args(argv)
    if args.table:
        print(tables(read(RESULTS)))
        return 0
    return main(lambda: measure(args.seconds))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
