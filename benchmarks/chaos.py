"""The exchange under blows: kills, stalls, cut links, late commits; one state and no lost work afterwards?

    python benchmarks/chaos.py                                 200 rounds among 6 peers, about 25 minutes
    python benchmarks/chaos.py --rounds 20 --seed 7            shorter, other blows
    python benchmarks/chaos.py --codec sparse --redundancy 2   another codec, every part reduced twice

Every peer is a process with its own libp2p daemon and DHT process, and runs the miner's own loop against one clock
that waits for nobody. What is checked and what the figures mean is in docs/chaos.md. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench import Figures, budget, main, say
from chaos_study.peer import Place, live, signer
from chaos_study.plan import KILLS, STALLS, Blow, Plan
from chaos_study.processes import TOKEN, growth, leftovers, ours, signal_to, size_of
from chaos_study.verdict import Life, Verdict

from subnet.config import CodecConfig, ModelConfig, RunConfig, load_run
from subnet.errors import UserError
from subnet.telemetry import METRICS_FILE

CALM_BEFORE, CALM_AFTER = 5, 4
"""Rounds without blows in which the peers meet, and in which they come to rest."""
BLOCK_SECONDS = 0.12
ROUND = {
    "blocks": 66,
    "train_end": 16,
    "commit_end": 23,
    "roster_end": 36,
    "scatter_end": 46,
    "gather_end": 57,
    "leader_blocks": 4,
}
MAX_IMBALANCE = 1e-3
"""Of produced + owed = taken + residual, as a share of an element of a pseudo-gradient: what rounding may add up to."""
MAX_GROWTH_MB = 0.5
"""Of a peer's processes together, per round, beyond its first ten."""
_LEAVE_SECONDS = 60.0


@dataclasses.dataclass
class Peer:
    """One peer as seen from here: its process in this life, and how far its events have been read."""

    index: int
    home: Path
    process: Any = None
    lives: list[Life] = dataclasses.field(default_factory=list)
    pause: float = 0.0
    struck: float = -1e9
    sizes: list[list[tuple[int, int, int]]] = dataclasses.field(default_factory=list)
    offset: int = 0

    def read(self) -> None:
        """Take in what it has said since the last look."""
        try:
            with (self.home / METRICS_FILE).open("rb") as file:
                file.seek(self.offset)
                fresh = file.read()
        except FileNotFoundError:
            return
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            self.lives[-1].events.append(event)
            if event["event"] == "round":
                self.measure(event["round"])

    def measure(self, index: int) -> None:
        """Note the memory and the open files of its processes at the end of a round."""
        with contextlib.suppress(OSError):
            self.sizes[-1].append((index, *size_of(self.pids().values())))

    def pids(self) -> dict[str, int]:
        """Its processes by what they are, as far as they run."""
        found = {"peer": self.process.pid}
        with contextlib.suppress(OSError, ValueError, KeyError):
            state = json.loads((self.home / "swarm.json").read_text())
            if state["pid"] == self.process.pid:
                found |= {name: state[name] for name in ("dht", "p2pd") if state[name]}
        return {name: pid for name, pid in found.items() if ours(pid)}


class Town:
    """All peers of a run, and the hand that strikes them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.run = run_of(options)
        self.folder = folder
        stop = CALM_BEFORE + options.rounds
        self.plan = Plan(options.seed, options.peers, self.run.rounds, CALM_BEFORE, stop)
        self.last = stop + CALM_AFTER - 1
        self.peers = [Peer(i, folder / str(i)) for i in range(options.peers)]
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([live.__module__])
        self.epoch, self.wall = 0.0, 0.0
        self.over = False
        self.failures: list[str] = []
        self.pids: set[int] = set()

    @property
    def block(self) -> float:
        return (time.monotonic() - self.epoch) / BLOCK_SECONDS

    async def play(self) -> None:
        """The whole run. Afterwards every peer has left or been killed."""
        (self.folder / "chain").mkdir()
        await asyncio.to_thread(self._warm_up)
        self.epoch, self.wall = time.monotonic(), time.time()
        keepers = [asyncio.create_task(self._keep(peer)) for peer in self.peers]
        hand = asyncio.create_task(self._strike_all())
        try:
            await self._watch()
            await hand
            await self._dismiss(keepers)
        finally:
            self.over = True
            hand.cancel()
            for peer in self.peers:
                for pid in peer.pids().values() if peer.process is not None else ():
                    signal_to(pid, signal.SIGKILL)
            await asyncio.wait(keepers, timeout=_LEAVE_SECONDS)

    def _warm_up(self) -> None:
        """Have the process from which peers are forked import everything once."""
        process = self.context.Process(target=os.getpid)
        process.start()
        process.join()

    async def _keep(self, peer: Peer) -> None:
        """Start a peer, and start it again whenever it has died."""
        while not self.over:
            life = len(peer.lives)
            place = Place(peer.index, life, self.plan, self.run, self.folder, self.epoch, BLOCK_SECONDS)
            peer.lives.append(Life(peer.index, life))
            peer.sizes.append([])
            peer.process = self.context.Process(target=live, args=(place,), name=f"peer-{peer.index}")
            await asyncio.to_thread(peer.process.start)
            await self._ended(peer.process.sentinel)
            peer.process.join()
            peer.read()
            peer.lives[-1].died = time.time()
            self._judge(peer, peer.process.exitcode)
            if self.over:
                return
            await asyncio.sleep(peer.pause)
            peer.pause = 0.0

    @staticmethod
    async def _ended(sentinel: int) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(sentinel)

    def _judge(self, peer: Peer, code: int) -> None:
        """A peer dies of a blow, or of its daemon's death within two rounds; nothing else may end it."""
        now = self.block
        if self.over and code == 0:
            return
        if code in (1, -signal.SIGKILL) and now - peer.struck < 2.5 * self.run.rounds.blocks:
            return
        if code == 1 and any(b.kind == "chain" and b.victim == peer.index for b in self.plan.active(now - 1)):
            return
        tail = "\n".join((peer.home / "log.txt").read_text(errors="replace").splitlines()[-15:])
        self._fail(int(now) // self.run.rounds.blocks, f"peer {peer.index} ended by itself with {code}:\n{tail}")

    def _fail(self, index: int, text: str) -> None:
        self.failures.append(f"seed {self.plan.seed}, round {index}: {text}")
        say(self.failures[-1])

    async def _strike_all(self) -> None:
        blows = [blow for index in range(self.plan.first, self.plan.stop) for blow in self.plan.of_round(index)]
        await asyncio.gather(*(self._strike(blow) for blow in blows if blow.kind in {*KILLS, *STALLS}))

    async def _strike(self, blow: Blow) -> None:
        peer = self.peers[blow.victim]
        await asyncio.sleep(max(0.0, (blow.start - self.block) * BLOCK_SECONDS))
        pids = peer.pids()
        self.pids.update(pids.values())
        if blow.kind in KILLS:
            peer.pause, peer.struck = blow.blocks * BLOCK_SECONDS, self.block
            signal_to(pids.get(KILLS[blow.kind]), signal.SIGKILL)
            return
        stopped = [pids.get(name) for name in STALLS[blow.kind]]
        for pid in stopped:
            signal_to(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(blow.blocks * BLOCK_SECONDS)
        finally:
            for pid in stopped:
                signal_to(pid, signal.SIGCONT)

    async def _watch(self) -> None:
        """Until everybody has ended the last round, or that was due two rounds ago; with a word now and then."""
        blocks, told = self.run.rounds.blocks, -1
        while self.block < (self.last + 2) * blocks:
            for peer in self.peers:
                peer.read()
            index = int(self.block) // blocks
            if index >= told + 10:
                told = index
                self._say(index)
            ends = [[e for e in p.lives[-1].events if e["event"] == "round"] for p in self.peers if p.lives]
            if len(ends) == len(self.peers) and all(e and e[-1]["round"] >= self.last for e in ends):
                return
            await asyncio.sleep(0.3)
        for peer in self.peers:
            ended = [e["round"] for e in peer.lives[-1].events if e["event"] == "round"]
            if not ended or ended[-1] < self.last:
                signal_to(peer.process.pid, signal.SIGUSR1)
                await asyncio.sleep(1.0)
                self._fail(self.last, f"peer {peer.index} hangs: it ended {ended[-1:]}; see {peer.home}/log.txt")

    def _say(self, index: int) -> None:
        left = (self.last + 1) * self.run.rounds.blocks * BLOCK_SECONDS - self.block * BLOCK_SECONDS
        ends = [e for p in self.peers for x in p.lives for e in x.events if e["event"] == "round"]
        step = max((e["step"] for e in ends), default=0)
        repaired = sum(not e["agreed"] for e in ends)
        restarts = sum(len(p.lives) - 1 for p in self.peers)
        load = os.getloadavg()[0]
        say(
            f"round {index} of {self.last + 1}: outer step {step}, {restarts} restarts, {repaired} repairs, "
            f"load {load:.1f}, {left / 60:.1f} minutes to go"
        )

    async def _dismiss(self, keepers: list[asyncio.Task[None]]) -> None:
        self.over = True
        for peer in self.peers:
            self.pids.update(peer.pids().values())
            signal_to(peer.process.pid, signal.SIGTERM)
        _, waiting = await asyncio.wait(keepers, timeout=_LEAVE_SECONDS)
        if waiting:
            self._fail(self.last, f"{len(waiting)} peers did not leave within {_LEAVE_SECONDS:.0f} s")


async def measure(options: argparse.Namespace | None = None) -> tuple[bool, Figures]:
    """Play the run and judge it."""
    options = options or parsed([])
    if sys.platform != "linux":
        raise UserError("this needs Linux: /proc tells it which processes are its own")
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sn38-chaos-")))
        (folder / "tmp").mkdir(parents=True)
        names = {"TMPDIR": folder / "tmp", "HOME": folder, TOKEN: folder}
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        os.environ |= {**{k: str(v) for k, v in names.items()}, "PYTHONPATH": os.pathsep.join(paths)}
        town = Town(options, folder)
        await town.play()
        left = await _nothing_left(town)
        lives = [life for peer in town.peers for life in peer.lives]
        hotkeys = [signer(i).ss58 for i in range(options.peers)]
        verdict = Verdict(town.plan, lives, hotkeys, town.wall, BLOCK_SECONDS)
        figures = verdict.figures()
        grown = growth([sizes for peer in town.peers for sizes in peer.sizes])
    failures = town.failures + verdict.failures
    for failure in failures:
        say(f"FAILED: {failure}")
    allowed = MAX_IMBALANCE * town.run.train.lr
    budgets = {
        "broken_promises": budget(len(failures), 0.5),
        "imbalance": budget(figures["conservation"]["worst_imbalance"], allowed),
        "left_behind": budget(sum(map(len, left.values())), 0.5),
        "growth_mb_a_round": budget(grown["mb_a_round"], MAX_GROWTH_MB),
    }
    run = {"rounds": options.rounds, "seed": options.seed, "peers": options.peers, "codec": options.codec}
    minutes = round((time.monotonic() - started) / 60, 1)
    told = {"growth": grown, "left": left, "failures": failures[:20], "minutes": minutes}
    return all(b["ok"] for b in budgets.values()), {**run, **figures, **told, "budgets": budgets}


async def _nothing_left(town: Town) -> dict[str, list[str]]:
    """What is left once torch's shared memory managers have seen that nobody needs them."""
    limit, homes = time.monotonic() + _LEAVE_SECONDS, [peer.home for peer in town.peers]
    while any((left := leftovers(town.folder, homes, town.pids, town.wall)).values()) and time.monotonic() < limit:
        await asyncio.sleep(0.5)
    return left


def run_of(options: argparse.Namespace) -> RunConfig:
    """The demo's run with a model of some thousand parameters, short rounds, and leaves small enough to have many."""
    demo = load_run("demo")
    model = ModelConfig(
        "custom", 264, hidden_size=8, intermediate_size=8, num_layers=1, num_heads=1, num_kv_heads=1, seq_len=8
    )
    codec = CodecConfig(options.codec, block=32, chunk=128, top_k=16, reduced_top_k=64, leaf_size=128)
    return dataclasses.replace(
        demo,
        name="chaos",
        model=model,
        codec=codec,
        rounds=dataclasses.replace(demo.rounds, **ROUND),
        aggregate=dataclasses.replace(demo.aggregate, redundancy=options.redundancy),
    )


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="rounds with blows")
    parser.add_argument("--seed", type=int, default=1, help="of the blows and of the pseudo-gradients")
    parser.add_argument("--peers", type=int, default=6)
    parser.add_argument("--codec", default="int8", choices=["fp32", "fp16", "int8", "int4", "sparse"])
    parser.add_argument("--redundancy", type=int, default=1, help="peers that reduce every part")
    parser.add_argument("--out", type=Path, help="a new folder for the peers' logs, which is kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(partial(measure, parsed())))
