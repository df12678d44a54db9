"""How long a neuron takes from exec until it trains (miner) or scores (validator), on two cores of its own.

    python benchmarks/startup.py

Imports, preflight, joining the swarm and, at the first start of all, tokenising the corpus are in it. Waiting for a
round to begin is not: that is what lies between a neuron's ``ready`` event and the round's first block.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from bench import Figures, Theatre, budget, main, say, swarm, two_cores

from subnet.config import load_run
from subnet.demo.board import Seat

BUDGET_SECONDS = 20.0
PATIENCE_SECONDS = 120.0
FIRST_PHASE = {"miner": "train", "validator": "score"}


async def measure() -> tuple[bool, Figures]:
    """Start a miner, a validator and the miner again, one after the other, each alone beside the chain."""
    os.sched_setaffinity(0, set(two_cores()))
    figures: Figures = {}
    async with swarm(lambda out: [Seat(role, role, out / role / "home", "") for role in FIRST_PHASE]) as theatre:
        miner, validator = theatre.seats
        for name, seat in (("miner_first", miner), ("validator_first", validator), ("miner_again", miner)):
            figures[name] = await _start(theatre, seat)
            say(f"{name}: {figures[name]}")
    return all(f["ok"] for f in figures.values()), {"unit": "s from exec to training, waiting excluded", **figures}


async def _start(theatre: Theatre, seat: Seat) -> Figures:
    """The seconds to be ready, and to be at work without the wait for a round in between."""
    blocks = load_run("demo").rounds.blocks
    started = time.time()

    def first(event: str, **values: Any) -> Any:
        return lambda e: e["time"] >= started and e["event"] == event and values.items() <= e.items()

    child = theatre.stage.start_neuron(seat, "demo")
    ready = await theatre.event(seat, first("ready"), "ready", PATIENCE_SECONDS)
    phase = await theatre.event(seat, first("phase", phase=FIRST_PHASE[seat.role]), "training", PATIENCE_SECONDS)
    waited = max(0.0, await theatre.moment(phase["round"] * blocks) - ready["time"])
    await asyncio.to_thread(theatre.stage.stop, child)
    figures = budget(phase["time"] - started - waited, BUDGET_SECONDS)
    return {**figures, "ready": round(ready["time"] - started, 2), "waited": round(waited, 2)}


if __name__ == "__main__":
    sys.exit(main(measure))
