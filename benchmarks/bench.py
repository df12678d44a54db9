"""What the benchmarks share: a swarm of real processes in a folder of its own, what they say, and one line of JSON.

Not a benchmark itself; each of those is one file, one budget, run as `python benchmarks/NAME.py`. Progress goes to
stderr, the figures to stdout, and the exit code is 0 only if the budget holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Children are started with `-m subnet...`: a checkout must do without being installed.
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
# Of the measuring process; the neurons get theirs from the stage.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console  # noqa: E402

from subnet.chain.client import Chain  # noqa: E402
from subnet.cli.demo import BLOCK_TIME, TEMPO, found  # noqa: E402
from subnet.config import RunConfig  # noqa: E402
from subnet.demo.board import Seat  # noqa: E402
from subnet.demo.stage import Stage  # noqa: E402
from subnet.errors import UserError  # noqa: E402

POLL_SECONDS = 0.05

Figures = dict[str, Any]


def say(text: str) -> None:
    """Progress, for whoever watches."""
    print(text, file=sys.stderr, flush=True)


def main(measure: Callable[[], Awaitable[tuple[bool, Figures]]]) -> int:
    """Run one benchmark and print its line; a benchmark that could not run is not ok and says why."""
    name = Path(sys.argv[0]).stem
    try:
        ok, figures = asyncio.run(_awaited(measure()))
    except UserError as error:
        ok, figures = False, {"error": str(error)}
    print(json.dumps({"benchmark": name, **figures, "ok": ok}))
    return 0 if ok else 1


def budget(measured: float, limit: float, *, at_least: bool = False) -> Figures:
    """One figure beside its budget, and their ratio: below 1 means that there is room left (with `at_least`, none)."""
    ok = measured >= limit if at_least else measured <= limit
    return {"measured": _short(measured), "budget": limit, "ratio": _short(measured / limit), "ok": ok}


@contextlib.asynccontextmanager
async def swarm(seats: Callable[[Path], list[Seat]], host: str = "127.0.0.1") -> AsyncIterator[Theatre]:
    """A chain with a subnet and everybody registered, no neuron started yet; nothing is left of it afterwards.

    `seats` says who takes part, given the folder that everything is written to.
    """
    with tempfile.TemporaryDirectory(prefix="sn38-bench-") as folder:
        out = Path(folder)
        stage = Stage(out, BLOCK_TIME, TEMPO, host)
        try:
            say("starting the chain, creating wallets, registering and staking ...")
            stage.start_chain()
            chain = await Chain.connect(stage.endpoint)
            try:
                cast = seats(out)
                await found(chain, stage, cast, Console(stderr=True))
                theatre = Theatre(stage, chain, cast)
                follower = asyncio.create_task(theatre.follow())
                try:
                    yield theatre
                finally:
                    follower.cancel()
                    await asyncio.to_thread(stage.close_neurons)
            finally:
                await chain.close()
        finally:
            stage.close()


@dataclasses.dataclass
class Theatre:
    """A staged swarm and what has been seen of it: events by seat name, and when each block came (seconds, wall)."""

    stage: Stage
    chain: Chain
    seats: list[Seat]
    events: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    came: dict[int, float] = dataclasses.field(default_factory=dict)

    async def follow(self) -> None:
        """Note the moment of every block."""
        async for head in self.chain.heads():
            self.came[head.number] = time.time()

    async def event(
        self, seat: Seat, wanted: Callable[[dict[str, Any]], bool], what: str, seconds: float
    ) -> dict[str, Any]:
        """The first event of `seat` that is `wanted`, seen already or awaited.

        Raises UserError after `seconds`, or when a child has ended by itself.
        """
        limit = time.monotonic() + seconds
        while True:
            for each in self.seats:
                self.events.setdefault(each.name, []).extend(each.read())
            for event in self.events[seat.name]:
                if wanted(event):
                    return event
            for child in self.stage.fallen():
                raise UserError(f"{child.name} ended by itself; its last words:\n{child.tail()}")
            if time.monotonic() > limit:
                tails = "\n".join(f"[{child.name}] {child.tail(3)}" for child in self.stage.children)
                raise UserError(f"{what} of {seat.name} did not come within {seconds:.0f} s; last words:\n{tails}")
            await asyncio.sleep(POLL_SECONDS)

    async def moment(self, block: int) -> float:
        """When `block` came, or the first one seen after it; waits for it."""
        while not any(number >= block for number in self.came):
            await asyncio.sleep(POLL_SECONDS)
        return min(when for number, when in self.came.items() if number >= block)

    async def round_event(self, seat: Seat, after: int, seconds: float) -> dict[str, Any]:
        """The first ``round`` event of `seat` about a round later than `after`."""
        return await self.event(
            seat, lambda e: e["event"] == "round" and e["round"] > after, f"a round after {after}", seconds
        )


@contextlib.contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Children started inside run on `cores` only (and so does this thread, meanwhile)."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def two_cores() -> tuple[int, int]:
    """Two cores this process may use. Raises UserError if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise UserError("this benchmark needs two cores: one for what is measured, one for the rest of the swarm")
    return cores[0], cores[1]


def write_run(run: RunConfig, path: Path) -> str:
    """Write a run as a TOML file and return what to pass to --run."""
    top, sections = {}, []
    for name, value in dataclasses.asdict(run).items():
        if isinstance(value, dict):
            sections.append(f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in value.items()))
        else:
            top[name] = value
    path.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in top.items()) + "\n" + "\n".join(sections))
    return str(path)


def descendants(pid: int) -> list[int]:
    """Every process below `pid`."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


async def _awaited(work: Awaitable[tuple[bool, Figures]]) -> tuple[bool, Figures]:
    return await work


def _short(value: float) -> float:
    return float(f"{value:.4g}")
