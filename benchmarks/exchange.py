"""One averaging round among real peers: ours, hivemind's `DecentralizedAverager` and gloo's all-reduce, side by side.

    python benchmarks/exchange.py                                  10 M parameters among 2, 4 and 8 peers
    python benchmarks/exchange.py --parameters 50 --peers 2 4      50 M among 2 and 4
    python benchmarks/exchange.py --contenders ours:int8 --peers 2 4 8 16
    python benchmarks/exchange.py --rate 100 --rtt 50 --peers 4    every peer behind a 100 Mbit/s link, 50 ms apart
    python benchmarks/exchange.py --rate 100 --rtt 50 --peers 4 --slow 10 --contenders ours:int8 equal:int8
                                                                   and one of them sends ten times more slowly

Every peer is a process of its own, in a network namespace of its own whose wire counts what is in the sockets (Linux
with iproute2 and unprivileged user namespaces). The same vectors for all; the exact mean is the measure of the error.
What is timed and what is not is in docs/exchange.md. `hivemind:blockwise8` needs bitsandbytes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import Figures, budget, descendants, main, say
from exchange_study.network import Count, Link, Network, count
from exchange_study.peers import SYSTEMS, Place
from netns import become_root

from subnet.errors import UserError

CONTENDERS = (
    "ours:int8", "ours:int8-4096", "ours:int4", "ours:sparse", "hivemind:uniform8", "hivemind:float16", "gloo:fp32",
)  # fmt: skip
EQUAL = "equal:int8"
"""Ours with parts of equal sizes."""
BLOCKWISE = "hivemind:blockwise8"
MIN_TIMES_FASTER = 3.0
"""Than hivemind with 8 bits, matchmaking left out on both sides."""
MAX_GROWTH = 1.1
"""Bytes per peer among 16 against among 4, each against what a butterfly all-reduce has to move."""
MIN_LINK_SHARE = 0.8
MIN_TIMES_FASTER_UNEQUAL = 1.2
"""With parts as large as rates are, against equal ones, where one peer sends --slow times more slowly."""
MATCHING = ("commit", "agree", "match")
"""Steps in which peers find each other; the rest moves and computes."""
ANSWER_SECONDS = 300.0
_LOOK_SECONDS = 0.05
_INSIDE = "--inside"
_FOLDER = Path(__file__).resolve().parent
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Peer:
    """One running peer, as seen from here."""

    process: asyncio.subprocess.Process
    log: Path

    def tell(self, name: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        """The next answer. Raises UserError when there is none."""
        assert self.process.stdout is not None
        with contextlib.suppress(asyncio.TimeoutError):
            if line := await asyncio.wait_for(self.process.stdout.readline(), ANSWER_SECONDS):
                return dict(json.loads(line))
        raise UserError(f"a peer did not answer; its last words:\n{self.log.read_text()[-3000:]}")

    @property
    def pids(self) -> list[int]:
        return [self.process.pid, *descendants(self.process.pid)]


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a round: wall seconds from the first peer's beginning to the last one's end, and what each moved."""

    name: str
    seconds: float
    cpu: float
    """Core seconds per peer, of all its processes."""
    moved: list[Count]


async def measure(options: argparse.Namespace | None = None) -> tuple[bool, Figures]:
    """Every contender at every size and number of peers; what of it has a budget."""
    if options is None or not options.inside:
        raise UserError("this needs Linux with iproute2, unshare, and user namespaces that one may create")
    link = Link(options.rate * 1e6, options.rtt / 2e3, options.slow) if options.rate else None
    rows: list[Figures] = []
    for size in options.parameters:
        for peers in options.peers:
            for contender in options.contenders:
                row = await contest(contender, int(size * 1e6) // 8 * 8, peers, options.rounds, link)
                say(json.dumps(row))
                rows.append(row)
    budgets = {**against_hivemind(rows), **growth(rows), **link_shares(rows), **against_equal(rows)}
    limits = {"mbit_per_second": options.rate, "rtt_ms": options.rtt, "slow": options.slow}
    network = limits if link else "no limits"
    figures = {"network": network, "cores": len(os.sched_getaffinity(0)), "rows": rows, "budgets": budgets}
    return all(b["ok"] for b in budgets.values()), figures


async def contest(contender: str, size: int, peers: int, rounds: int, link: Link | None) -> Figures:
    """One contender's figures: medians over `rounds` rounds, after one to warm up and before one that is watched."""
    system = contender.partition(":")[0]
    load = os.getloadavg()[0]
    async with running(contender, size, peers, link) as cast:
        names = list(SYSTEMS[system].steps)
        if link is None and names[-2:] == ["reduce", "gather"]:
            names[-2:] = ["reduce+gather"]  # as in life: nobody waits for others' reducing
        played = []
        for number in range(rounds + 1):
            await together(cast, "prepare", number)
            played.append([await step(cast, name) for name in names])
            took = ", ".join(f"{s.name} {s.seconds:.2f} s" for s in played[-1])
            say(f"{contender}, {size / 1e6:g} M, {peers} peers: {took}")
        cast[0].tell("error", rounds)
        error = (await cast[0].hear())["error"]
        peak, added = await watched(cast, names, rounds + 1)
    counted = played[1:]

    def median(steps: Sequence[Sequence[Step]], of: str) -> float:
        return statistics.median(sum(getattr(s, of) for s in each) for each in steps)

    moving = [[s for s in each if s.name not in MATCHING] for each in counted]
    up, down = (
        [statistics.mean(getattr(c, way) for s in each for c in s.moved) * len(each) for each in counted]
        for way in ("up", "down")
    )
    row = {
        "contender": contender, "parameters": size, "peers": peers, "load": round(load, 1),
        "seconds": round(median(moving, "seconds"), 3),
        "seconds_with_matching": round(median(counted, "seconds"), 3),
        "steps": {n: round(statistics.median(e[i].seconds for e in counted), 3) for i, n in enumerate(names)},
        "cpu_seconds": round(median(counted, "cpu"), 3),
        "mb_up": round(statistics.median(up) / 1e6, 3), "mb_down": round(statistics.median(down) / 1e6, 3),
        "error": float(f"{error:.3g}"), "peak_mb": round(peak / 1e6), "added_mb": round(added / 1e6),
    }  # fmt: skip
    if link is not None and link.slow != 1.0:
        row["mb_up_of_slow"] = round(statistics.median(sum(s.moved[0].up for s in each) for each in counted) / 1e6, 3)
    elif link is not None:
        row["link_share"] = {
            n: round(statistics.median(share(each[i], link) for each in counted), 3)
            for i, n in enumerate(names) if n in ("reduce", "gather", "average")
        }  # fmt: skip
    return row


@contextlib.asynccontextmanager
async def running(contender: str, size: int, peers: int, link: Link | None) -> AsyncIterator[list[Peer]]:
    """The peers, which know each other; nothing is left of them afterwards."""
    system, _, codec = contender.partition(":")
    with tempfile.TemporaryDirectory(prefix="sn38-bench-") as folder:
        network = Network(peers, link)
        cast: list[Peer] = []
        first: list[str] = []
        try:
            for i in range(peers):
                place = Place(i, peers, size, codec, network.address(i), f"{folder}/{i}", first)
                with network.inside(i):
                    cast.append(await start(system, place, Path(folder) / f"{i}.log"))
                if i == 0:
                    first = (await cast[0].hear())["maddrs"]
            for peer in cast[1:]:
                await peer.hear()
            await together(cast, "assemble")
            yield cast
        finally:
            await end(cast)
            network.close()


async def start(system: str, place: Place, log: Path) -> Peer:
    paths = [str(_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GLOO_SOCKET_IFNAME": "wire"}
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "exchange_study.peers", system, json.dumps(dataclasses.asdict(place)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, env=environment,
        )  # fmt: skip
    return Peer(process, log)


async def end(cast: Sequence[Peer]) -> None:
    """Kindly first: hivemind's children outlive a parent that is killed."""
    pids = [pid for peer in cast for pid in peer.pids]
    for peer in cast:
        assert peer.process.stdin is not None
        peer.process.stdin.close()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.gather(*(peer.process.wait() for peer in cast)), 20.0)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    for peer in cast:
        await peer.process.wait()


async def together(cast: Sequence[Peer], name: str, *arguments: Any) -> list[dict[str, Any]]:
    """All do the same; their answers."""
    for peer in cast:
        peer.tell(name, *arguments)
    return list(await asyncio.gather(*(peer.hear() for peer in cast)))


async def step(cast: Sequence[Peer], name: str) -> Step:
    pids = [pid for peer in cast for pid in peer.pids]
    cpu = sum(map(core_seconds, pids))
    before = [count(peer.process.pid) for peer in cast]
    answers = await together(cast, name)
    moved = [count(peer.process.pid) - b for peer, b in zip(cast, before, strict=True)]
    seconds = max(a["stop"] for a in answers) - min(a["start"] for a in answers)
    return Step(name, seconds, (sum(map(core_seconds, pids)) - cpu) / len(cast), moved)


async def watched(cast: Sequence[Peer], names: Sequence[str], number: int) -> tuple[float, float]:
    """The most memory that a peer had in one more round, and how much of that came with its steps from MATCHING on.

    Bytes, medians over peers: shared pages by their share, all of a peer's processes.
    """
    pids = [peer.pids for peer in cast]

    def now() -> list[float]:
        return [sum(map(proportional_bytes, own)) for own in pids]

    async def watch() -> None:
        while True:
            peaks[:] = map(max, peaks, now())
            await asyncio.sleep(_LOOK_SECONDS)

    await together(cast, "prepare", number)
    peaks = before = now()
    watcher = asyncio.create_task(watch())
    try:
        for name in names:
            if name in MATCHING:
                before = now()
            await together(cast, name)
    finally:
        watcher.cancel()
    return statistics.median(peaks), statistics.median(map(float.__sub__, peaks, before))


def core_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def proportional_bytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def share(step: Step, link: Link) -> float:
    """Of what the link could have carried each way meanwhile, the part that was used, as a mean over peers and ways."""
    return statistics.mean((c.up + c.down) / 2 for c in step.moved) * 8 / (link.rate * step.seconds)


def against_hivemind(rows: Sequence[Figures]) -> Figures:
    """Ours in int8 against each of hivemind's codecs of 8 bits, in the same cell."""
    budgets: Figures = {}
    for ours in (row for row in rows if row["contender"].startswith("ours:int8")):
        for row in rows:
            same = (row["parameters"], row["peers"]) == (ours["parameters"], ours["peers"])
            if row["contender"] in ("hivemind:uniform8", BLOCKWISE) and same:
                cell = f"{ours['contender']}_{row['contender']}_{ours['parameters'] / 1e6:g}M_{ours['peers']}"
                faster = row["seconds"] / ours["seconds"]
                budgets[f"times_faster_{cell}"] = budget(faster, MIN_TIMES_FASTER, at_least=True)
                budgets[f"core_seconds_{cell}"] = budget(ours["cpu_seconds"], row["cpu_seconds"])
                budgets[f"bytes_{cell}"] = budget(ours["mb_up"], row["mb_up"])
                budgets[f"error_{cell}"] = budget(ours["error"], row["error"])
    return budgets


def growth(rows: Sequence[Figures]) -> Figures:
    """Bytes per peer among more peers than four against among four, of what a butterfly must move."""
    ours = [row for row in rows if row["contender"] == "ours:int8"]
    fours = {row["parameters"]: row for row in ours if row["peers"] == 4}
    budgets = {}
    for row in ours:
        four = fours.get(row["parameters"])
        if four is not None and row["peers"] > 4:
            per_copy = [r["mb_up"] / (2 * (r["peers"] - 1) / r["peers"]) for r in (row, four)]
            cell = f"{row['parameters'] / 1e6:g}M_{row['peers']}"
            budgets[f"growth_{cell}"] = budget(per_copy[0] / per_copy[1], MAX_GROWTH)
    return budgets


def link_shares(rows: Sequence[Figures]) -> Figures:
    """The share of a throttled link that ours fills in the gather."""
    return {
        f"gather_share_{row['contender']}_{row['parameters'] / 1e6:g}M_{row['peers']}": budget(
            row["link_share"]["gather"], MIN_LINK_SHARE, at_least=True
        )
        for row in rows
        if "gather" in row.get("link_share", {})
    }


def against_equal(rows: Sequence[Figures]) -> Figures:
    """Ours against itself with equal parts, in the same cell."""
    budgets: Figures = {}
    for ours in (row for row in rows if row["contender"] == "ours:int8"):
        for row in rows:
            if row["contender"] == EQUAL and all(row[key] == ours[key] for key in ("parameters", "peers")):
                faster = budget(row["seconds"] / ours["seconds"], MIN_TIMES_FASTER_UNEQUAL, at_least=True)
                budgets[f"times_faster_than_equal_{ours['parameters'] / 1e6:g}M_{ours['peers']}"] = faster
    return budgets


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    usual = [*CONTENDERS, *([BLOCKWISE] if importlib.util.find_spec("bitsandbytes") else [])]
    known = [*usual, EQUAL]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parameters", type=float, nargs="+", default=[10.0], help="millions")
    parser.add_argument("--peers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--contenders", nargs="+", choices=known, default=usual, metavar="SYSTEM:CODEC")
    parser.add_argument("--rounds", type=int, default=5, help="counted ones, beside one before and one after")
    parser.add_argument("--rate", type=float, default=0.0, help="of every peer's link, Mbit/s each way; 0: no limit")
    parser.add_argument("--rtt", type=float, default=0.0, help="between two peers with --rate, ms")
    parser.add_argument("--slow", type=float, default=1.0, help="how much slower the first peer sends, with --rate")
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    chosen = parse(sys.argv[1:])
    if not chosen.inside:
        become_root(__file__, *sys.argv[1:], _INSIDE)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    sys.exit(main(partial(measure, chosen)))
