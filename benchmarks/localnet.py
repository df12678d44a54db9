"""The embedded chain under a demo's clients: its pace, its memory, and how soon its first block is there.

    python benchmarks/localnet.py

Eight clients in a process of their own do what eight neurons do (heads, hyperparameters, one commitment, a metagraph
and a block hash every round, weights every tempo), a ninth looks on like the demo. The pace is that of the heads as
they reach a client that does nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import Figures, budget, main, say, swarm
from websockets.asyncio.client import connect

from subnet.chain.client import Chain
from subnet.chain.keys import load_hotkey
from subnet.cli.demo import BLOCK_TIME, CHAIN_LOOK_SECONDS, TEMPO
from subnet.config import load_run
from subnet.demo.board import Seat
from subnet.demo.stage import NETUID, Stage

CLIENTS = 8
VALIDATORS = 2
WATCHED_BLOCKS = 240
MAX_DRIFT = 0.02
"""Share by which the mean block time may miss the one asked for, either way."""
MAX_RSS_MB = 150.0
MAX_FIRST_BLOCK_SECONDS = 1.0
SILENCE_SECONDS = 20.0


async def measure() -> tuple[bool, Figures]:
    """First block of a fresh chain; then pace and memory of one with a subnet and clients."""
    first = await _first_block()
    say(f"first block after {first:.2f} s")

    def seats(out: Path) -> list[Seat]:
        names = [f"validator-{i}" for i in range(VALIDATORS)] + [f"miner-{i}" for i in range(CLIENTS - VALIDATORS)]
        return [Seat(name, name.split("-")[0], out / name, "") for name in names]

    async with swarm(seats) as theatre:
        stage = theatre.stage
        chain = next(child for child in stage.children if child.name == "chain")
        clients = stage.spawn("clients", [sys.executable, __file__, stage.endpoint, str(stage.wallets)])
        while "attached" not in clients.tail():
            await asyncio.sleep(0.1)
        say(f"{CLIENTS} clients are attached; watching {WATCHED_BLOCKS} blocks")
        came = await _watch(stage.endpoint, WATCHED_BLOCKS)
        if not clients.running or "Traceback" in clients.log.read_text():
            return False, {"error": f"the clients failed: {clients.tail()}"}
        rss = _peak_rss_mb(chain.process.pid)
    gaps = sorted(b - a for a, b in itertools.pairwise(came))
    mean = (came[-1] - came[0]) / WATCHED_BLOCKS
    drift = budget(abs(mean / BLOCK_TIME - 1.0), MAX_DRIFT)
    figures: Figures = {
        "block_time_drift": {**drift, "block_seconds": round(mean, 4)},
        "rss_mb": budget(rss, MAX_RSS_MB),
        "first_block_seconds": budget(first, MAX_FIRST_BLOCK_SECONDS),
    }
    held = {"block_seconds_p99": round(gaps[len(gaps) * 99 // 100], 3), "block_seconds_longest": round(gaps[-1], 3)}
    return all(f["ok"] for f in figures.values()), {"clients": CLIENTS, **figures, **held}


async def _first_block() -> float:
    """Seconds from exec until a client has been told of a block."""
    with tempfile.TemporaryDirectory(prefix="sn38-bench-") as folder:
        stage = Stage(Path(folder), BLOCK_TIME, TEMPO)
        started = time.monotonic()
        try:
            stage.start_chain()
            await _watch(stage.endpoint, 0)
            return time.monotonic() - started
        finally:
            stage.close()


async def _watch(endpoint: str, blocks: int) -> list[float]:
    """When each of the next `blocks` + 1 heads arrived."""
    came: list[float] = []
    numbers: list[int] = []
    async with connect(endpoint) as socket:
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "chain_subscribeNewHeads", "params": []}))
        while len(came) <= blocks:
            message = json.loads(await asyncio.wait_for(socket.recv(), SILENCE_SECONDS))
            if "params" in message:
                came.append(time.monotonic())
                numbers.append(int(message["params"]["result"]["number"], 16))
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "heads were skipped"
    return came


def _peak_rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


async def attend(endpoint: str, folder: Path) -> None:
    """The clients' process: attach all, say so, and go on until killed."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "owner")
    chains = [await Chain.connect(endpoint) for _ in range(CLIENTS + 1)]
    attached = asyncio.Semaphore(0)
    work: list[Any] = [_neuron(c, folder, n, attached) for c, n in zip(chains, names, strict=False)]
    tasks = [asyncio.create_task(each) for each in (*work, _onlooker(chains[-1]))]
    for _ in range(CLIENTS):
        await attached.acquire()
    print("attached", flush=True)
    await asyncio.gather(*tasks)


async def _neuron(chain: Chain, folder: Path, name: str, attached: asyncio.Semaphore) -> None:
    """What `subnet.neuron` and a validator ask of the chain."""
    rounds = load_run("demo").rounds
    hotkey = load_hotkey(name, "default", str(folder))
    clock = await chain.clock()
    await chain.hyperparameters(NETUID)
    await chain.commit(NETUID, hotkey, name.encode())
    attached.release()
    while True:
        start = (int(clock.block()) // rounds.blocks + 1) * rounds.blocks
        await clock.wait_until(start)
        await clock.hash_of(start)
        graph = await chain.metagraph(NETUID, block=start)
        if name.startswith("validator"):
            miners = {row.uid: 1.0 for row in graph.rows if row.uid and not row.permit}
            await chain.set_weights(NETUID, hotkey, miners)


async def _onlooker(chain: Chain) -> None:
    """What the demo itself asks of the chain."""
    while True:
        await chain.metagraph(NETUID)
        await asyncio.sleep(CHAIN_LOOK_SECONDS)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(attend(sys.argv[1], Path(sys.argv[2])))
    else:
        sys.exit(main(measure))
