"""What being a miner costs training: tokens per second of a running miner against a bare loop on the same core.

    python benchmarks/inner_loop.py

The miner is a process of a real swarm (chain, second miner, validator), held on one core with its network processes;
its rate is that of its ``round`` events. In the quiet end of each round a plain PyTorch loop of the same model, batch,
thread count and priority runs on that core. Every round of the miner is judged against the bare loops before and after
it, and the median counts. Whatever the core did for others is taken out on both sides: the bare loop is timed by its
own CPU time, the miner by the clock less the time of strangers. A third loop keeps the other core evenly busy.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bench import Figures, Theatre, budget, descendants, main, pinned, say, swarm, two_cores, write_run
from torch.nn.functional import cross_entropy

from subnet.config import RoundConfig, RunConfig, load_run
from subnet.demo.board import Seat
from subnet.model.build import build_model, init_theta
from subnet.neuron import COMPUTE_NICENESS

MIN_SHARE = 0.95
QUIET_ROUNDS = 7
MAX_ROUNDS = 20
MAX_STRANGERS = 0.1
"""Share of the core's time that others may have in a quiet round."""
INNER_STEPS = 30
"""Twice the demo's, and far fewer than of a real run: what a round costs once weighs more here, and noise less."""
TRAIN_BLOCKS, QUIET_BLOCKS = 64, 56
"""Most that training may take, and what the round has left for the bare loop after the demo's other phases."""
START_SECONDS = 120.0
LOWEST_PRIORITY = 19
PHASE_ENDS = ("train_end", "commit_end", "roster_end", "scatter_end", "gather_end")
SEATS = {"miner": "miner", "miner-2": "miner", "validator": "validator"}


@dataclasses.dataclass(frozen=True)
class Pair:
    """One round: the miner's tokens a second and the bare loop's around it; `strangers` is their share of the core."""

    miner: float
    bare: float
    strangers: float

    @property
    def quiet(self) -> bool:
        return self.strangers <= MAX_STRANGERS


async def measure() -> tuple[bool, Figures]:
    """The miner's share of the bare loop's rate, in pairs."""
    run = load_run("demo")
    run = dataclasses.replace(
        run,
        name="bench",
        train=dataclasses.replace(run.train, inner_steps=INNER_STEPS),
        rounds=_stretched(run.rounds, TRAIN_BLOCKS - run.rounds.train_end),
    )
    mine, others = two_cores()
    with pinned({others}):
        async with swarm(lambda out: [Seat(name, role, out / name, "") for name, role in SEATS.items()]) as theatre:
            path = write_run(run, theatre.stage.out / "bench.toml")
            miner, *rest = theatre.seats
            for seat in rest:
                theatre.stage.start_neuron(seat, path, "--no-wandb")
            with pinned({mine}):
                process = theatre.stage.start_neuron(miner, path, "--no-wandb").process
                bare = _start_bare(path, COMPUTE_NICENESS, 0)
            filler = _start_bare(path, LOWEST_PRIORITY, 1)
            try:
                pairs = await _pairs(theatre, miner, Core(mine, process.pid), bare)
            finally:
                for child in (bare, filler):
                    child.kill()
                    child.wait()
    # A core that others use most of the time tells more of its caches than of the miner.
    judged = [p for p in pairs if p.quiet] if sum(p.quiet for p in pairs) >= QUIET_ROUNDS else pairs
    figures: Figures = {
        "share_of_bare_loop": budget(statistics.median(p.miner / p.bare for p in judged), MIN_SHARE, at_least=True),
        "shares": [round(p.miner / p.bare, 3) for p in judged],
        "strangers": [round(p.strangers, 2) for p in judged],
        "miner_tokens_per_second": round(statistics.median(p.miner for p in judged)),
        "bare_tokens_per_second": round(statistics.median(p.bare for p in judged)),
    }
    return figures["share_of_bare_loop"]["ok"], figures


def _stretched(rounds: RoundConfig, by: int) -> RoundConfig:
    """`rounds` with `by` blocks more of training, and a quiet end."""
    ends = {name: getattr(rounds, name) + by for name in PHASE_ENDS}
    return dataclasses.replace(rounds, **ends, blocks=ends["gather_end"] + QUIET_BLOCKS)


async def _pairs(theatre: Theatre, miner: Seat, core: Core, bare: subprocess.Popen[str]) -> list[Pair]:
    """QUIET_ROUNDS quiet rounds and whatever rounds were in between, MAX_ROUNDS at most."""
    last = (await theatre.round_event(miner, -1, START_SECONDS))["round"]
    await _bare_rate(bare)  # both are warm from here on
    before = await _bare_rate(bare)
    pairs: list[Pair] = []
    while len(pairs) < MAX_ROUNDS and sum(p.quiet for p in pairs) < QUIET_ROUNDS:
        event, stolen = await _trained_round(theatre, miner, core, last)
        last, seconds = event["round"], event["seconds"]
        after = await _bare_rate(bare)
        pairs.append(Pair(event["tokens"] / (seconds - stolen), (before + after) / 2, stolen / seconds))
        before = after
        say(
            f"round {last}: miner {pairs[-1].miner:.0f} tokens/s in {seconds:.2f} s, of which strangers had "
            f"{stolen:.2f}; bare {pairs[-1].bare:.0f}"
        )
    return pairs


async def _trained_round(theatre: Theatre, miner: Seat, core: Core, last: int) -> tuple[dict[str, Any], float]:
    """The miner's next ``round`` event, and the seconds its core worked for strangers while it trained."""

    def phase(name: str) -> Callable[[dict[str, Any]], bool]:
        return lambda e: e["event"] == "phase" and e["phase"] == name and e["round"] > last

    await theatre.event(miner, phase("train"), "training", START_SECONDS)
    before = core.strangers()
    await theatre.event(miner, phase("commit"), "commitment", START_SECONDS)
    stolen = max(0.0, core.strangers() - before)
    return await theatre.round_event(miner, last, START_SECONDS), stolen


@dataclasses.dataclass(frozen=True)
class Core:
    """A core, and the process (with its children) that it is meant for."""

    number: int
    pid: int

    def strangers(self) -> float:
        """CPU seconds it has spent on anybody else, up to a constant."""
        busy = next(x for x in Path("/proc/stat").read_text().splitlines() if x.startswith(f"cpu{self.number} "))
        user, nice, system = map(int, busy.split()[1:4])
        own = sum(map(_ticks, [self.pid, *descendants(self.pid)]))
        return (user + nice + system - own) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def _bare_rate(bare: subprocess.Popen[str]) -> float:
    """Tokens per CPU second of one round's worth of bare steps."""
    assert bare.stdin is not None and bare.stdout is not None
    bare.stdin.write("go\n")
    bare.stdin.flush()
    tokens, seconds = map(float, (await asyncio.to_thread(bare.stdout.readline)).split())
    return tokens / seconds


def _start_bare(run: str, niceness: int, endless: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, run, str(niceness), str(endless)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def bare_loop(run: RunConfig, niceness: int, endless: bool) -> None:
    """The bare loop's process: a round's worth of steps for every line on stdin; until its end, or without pause."""
    os.nice(niceness)
    torch.set_num_threads(1)
    model = build_model(run.model)
    model.load_state_dict(init_theta(run.model, run.seed), strict=False)
    train = run.train
    adamw = torch.optim.AdamW(
        model.parameters(), lr=train.lr, betas=train.betas, weight_decay=train.weight_decay, fused=True
    )
    steps, shape = train.inner_steps, (train.batch_size, run.model.seq_len)
    while endless or sys.stdin.readline():
        batches = torch.randint(256, (steps, *shape))
        started = time.process_time()
        for ids_BT in batches:
            logits_BTV = model(input_ids=ids_BT).logits
            cross_entropy(logits_BTV[:, :-1].flatten(0, 1), ids_BT[:, 1:].flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), train.grad_clip)
            adamw.step()
            adamw.zero_grad()
        if not endless:
            print(batches.numel(), time.process_time() - started, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        bare_loop(load_run(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1")
    else:
        sys.exit(main(measure))
