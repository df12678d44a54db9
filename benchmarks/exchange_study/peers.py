"""One peer of an averaging round, in a process of its own: ours, hivemind's averager, or gloo's all-reduce.

Commands come as lines of JSON on stdin, [name, argument]; the answer, one line, has the moments (seconds, monotonic:
the same clock for all processes) at which the work began and ended. The one who commands waits for all peers' answers
between the commands, so every command is a barrier.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from exchange_study.vectors import error, mean, vector
from subnet.chain.keys import hotkey_from_uri
from subnet.config import NodeConfig, RunConfig, load_run, run_id
from subnet.diloco.aggregate import norm
from subnet.diloco.codec import codec_of, decode_part, encode_tree
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.exchange.commitment import Contribution
from subnet.exchange.roster import Member
from subnet.exchange.round import Facts, Round
from subnet.exchange.session import Exchange
from subnet.exchange.window import Window
from subnet.swarm.network import Swarm
from subnet.swarm.traffic import UNKNOWN_RATE

STATE = b"s" * 32
PATIENCE_SECONDS = 240.0
_LOOK_SECONDS = 0.01

Answer = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Which peer this is, among how many, and what they average with what."""

    index: int
    peers: int
    size: int
    codec: str
    host: str
    home: str
    first: list[str]
    """Addresses of peer 0, for all others."""


class HandClock:
    """A block clock that is moved by hand; whatever lies ahead is PATIENCE_SECONDS off."""

    def __init__(self) -> None:
        self._block = 0.0
        self._moved = asyncio.Event()

    def block(self) -> float:
        return self._block

    def seconds_until(self, block: float) -> float:
        return PATIENCE_SECONDS if block > self._block else 0.0

    async def wait_until(self, block: float) -> None:
        while self._block < block:
            await self._moved.wait()

    def move_to(self, block: float) -> None:
        self._block = float(block)
        self._moved.set()
        self._moved = asyncio.Event()


@dataclass(frozen=True)
class Row:
    hotkey: str
    commitment: bytes | None = None


@dataclass(frozen=True)
class Rows:
    """As much of a metagraph as the swarm reads."""

    rows: list[Row]


def run_with(codec: str) -> RunConfig:
    """The demo's run with this codec, like int8 or int8-4096 with that block; the layout is cut of the vectors."""
    run = load_run("demo")
    name, _, block = codec.partition("-")
    return replace(run, name="bench", codec=replace(run.codec, name=name, block=int(block or run.codec.block)))


class Ours:
    """A real swarm and a real exchange; only the chain is missing: the clock is moved by hand."""

    steps = ("encode", "commit", "agree", "reduce", "gather")
    swarm_type = Swarm

    def __init__(self, place: Place) -> None:
        self.place = place
        self.run = run_with(place.codec)
        self.layout = Layout.of([("weights", (place.size,))], self.run.codec.leaf_size)
        self.clock = HandClock()
        self.signers = [hotkey_from_uri(f"//bench-{i}") for i in range(place.peers)]

    async def start(self) -> list[str]:
        place = self.place
        self.signer = self.signers[place.index]
        node = NodeConfig(home=Path(place.home), host=place.host, wandb="disabled")
        rows = Rows([Row(s.ss58) for s in self.signers])
        self.swarm = await self.swarm_type.start(
            node, self.signer, self.run, rows, self.clock.block, bootstrap=place.first
        )
        clock: Any = self.clock
        self.exchange = Exchange(self.run, run_id(self.run), self.layout, self.swarm, clock, self.signer)
        return list(self.swarm.maddrs)

    async def stop(self) -> None:
        await self.swarm.stop()

    async def assemble(self) -> None:
        await until(lambda: len(self.swarm.peers) == self.place.peers - 1)

    async def prepare(self, index: int) -> None:
        """A new round at its first block, and this peer's vector of it."""
        window = Window.of_round(self.run.rounds, 100 + index)
        self.clock.move_to(window.start)
        self.swarm.store.drop_before(window.round)
        await self.swarm.enter_round(window.round, {s.ss58 for s in self.signers})
        members = {s.ss58: Member(s.ss58, 0.0, False) for s in self.signers}
        facts = asyncio.get_running_loop().create_future()
        facts.set_result(Facts(window.round.to_bytes(32, "big"), members))
        self.round = Round(window, facts)
        self.values = vector(self.place.size, self.place.index, index)

    async def encode(self) -> None:
        """What a miner does with its pseudo-gradient: the codec, what it loses, hashes, and the norm."""
        self.contribution = await asyncio.to_thread(self._contribute)

    def _contribute(self) -> Contribution:
        codec = codec_of(self.run.codec)
        leaves = encode_tree(codec, self.layout, self.values)
        sent = decode_part(codec, self.layout, leaves, 0, self.layout.num_leaves)
        return Contribution(leaves, Tree(hash_leaves(leaves)), norm(sent), 100, 1)

    async def commit(self) -> None:
        """Until this peer has seen everybody's commitment."""
        assert await self.exchange.commit(self.round, self.contribution, STATE)
        while len(await self.swarm.records("commit", self.round.window.round)) < self.place.peers:
            await asyncio.sleep(_LOOK_SECONDS)

    async def agree(self) -> None:
        self.clock.move_to(self.round.window.commit_end)
        roster = await self.exchange.agree_on_roster(self.round, self.contribution, STATE)
        assert roster is not None and roster.averaged == self.place.peers, "not everybody is averaged"
        self.roster = roster

    async def reduce(self) -> None:
        self.reduced = await self.exchange.reduce(self.round, self.roster)

    async def gather(self) -> None:
        update = await self.exchange.gather(self.round, self.roster, self.reduced)
        assert not update.missing, f"parts {update.missing} are missing"
        assert all(len(r.included) == self.place.peers for r in update.results.values()), "somebody is not in the mean"
        assert not self.exchange.refusals.counted, dict(self.exchange.refusals.counted)
        self.result = update.delta


class Unmeasured(Swarm):
    """A swarm's peer that never knows what it can upload."""

    @property
    def rate(self) -> int:
        return UNKNOWN_RATE


class Equal(Ours):
    """Ours with equal parts, however unequal the links are."""

    swarm_type = Unmeasured


class Hivemind:
    """hivemind's `DecentralizedAverager`, groups full at once: nobody waits for more peers than there are."""

    steps = ("match", "average")

    def __init__(self, place: Place) -> None:
        self.place = place

    async def start(self) -> list[str]:
        import hivemind
        from hivemind import compression

        place = self.place
        codecs = {
            "float16": compression.Float16Compression,
            "uniform8": compression.Uniform8BitQuantization,
            "blockwise8": compression.BlockwiseQuantization,
        }
        self.dht = hivemind.DHT(
            host_maddrs=[f"/ip4/{place.host}/tcp/0"],
            initial_peers=place.first,
            use_relay=False,
            auto_nat=False,
            nat_port_map=False,
            start=True,
        )
        self.averager = hivemind.DecentralizedAverager(
            [torch.zeros(place.size)],
            self.dht,
            prefix="bench",
            target_group_size=place.peers,
            min_group_size=place.peers,
            min_matchmaking_time=3.0,
            request_timeout=2.0,
            allreduce_timeout=PATIENCE_SECONDS,
            compression=codecs[place.codec](),
            start=True,
        )
        return [str(m) for m in self.dht.get_visible_maddrs()]

    async def stop(self) -> None:
        self.averager.shutdown()
        self.dht.shutdown()

    async def assemble(self) -> None:
        """Their matchmaking finds everybody."""

    async def prepare(self, index: int) -> None:
        with self.averager.get_tensors() as (tensor,):
            tensor.copy_(vector(self.place.size, self.place.index, index))

    async def match(self) -> None:
        """Until this peer's group is full and waits for the word to begin."""
        from hivemind.averaging.control import AveragingStage

        self.step = self.averager.step(timeout=PATIENCE_SECONDS, allow_retries=True, require_trigger=True, wait=False)
        await until(lambda: self.step.stage == AveragingStage.AWAITING_TRIGGER or self.step.done())

    async def average(self) -> None:
        self.step.allow_allreduce()
        group = await asyncio.to_thread(self.step.result, PATIENCE_SECONDS)
        assert len(group) == self.place.peers, "not everybody is averaged"

    @property
    def result(self) -> torch.Tensor:
        with self.averager.get_tensors() as (tensor,):
            return tensor.clone()


class Gloo:
    """`torch.distributed`'s all-reduce of fp32 with gloo: no compression, and nobody may be missing."""

    steps = ("average",)

    def __init__(self, place: Place) -> None:
        self.place = place

    async def start(self) -> list[str]:
        return [f"tcp://{self.place.host}:29538"]

    async def stop(self) -> None:
        torch.distributed.destroy_process_group()

    async def assemble(self) -> None:
        import torch.distributed as dist

        rendezvous = self.place.first[0] if self.place.first else f"tcp://{self.place.host}:29538"
        dist.init_process_group("gloo", rendezvous, rank=self.place.index, world_size=self.place.peers)
        dist.barrier()

    async def prepare(self, index: int) -> None:
        self.result = vector(self.place.size, self.place.index, index)

    async def average(self) -> None:
        torch.distributed.all_reduce(self.result)
        self.result /= self.place.peers


SYSTEMS: dict[str, Any] = {"ours": Ours, "equal": Equal, "hivemind": Hivemind, "gloo": Gloo}


async def until(condition: Callable[[], bool]) -> None:
    """Return once `condition()` holds; TimeoutError after PATIENCE_SECONDS."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError("the condition never came true")
        await asyncio.sleep(_LOOK_SECONDS)


async def serve(peer: Any, say: Callable[[Answer], None]) -> None:
    """Do as told until told to stop, or until nobody is there to tell."""
    place = peer.place
    say({"maddrs": await peer.start()})
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *arguments = json.loads(line)
            if name == "error":
                exact = await asyncio.to_thread(mean, place.size, place.peers, *arguments)
                say({"error": error(peer.result, exact)})
                continue
            start = time.monotonic()
            for step in name.split("+"):
                await getattr(peer, step)(*arguments)
            say({"start": start, "stop": time.monotonic()})
    finally:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(peer.stop(), 10.0)


def main() -> None:
    # Answers go to what was stdout; whatever libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("place", type=json.loads)
    arguments = parser.parse_args()
    place = Place(**arguments.place)
    torch.set_num_threads(1)

    def say(answer: Answer) -> None:
        print(json.dumps(answer), file=answers)

    asyncio.run(serve(SYSTEMS[arguments.system](place), say))


if __name__ == "__main__":
    main()
