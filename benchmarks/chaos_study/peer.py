"""One peer of a chaos run, in a process of its own: the real neuron and miner on a stand-in for chain and training.

Not a simulation of the exchange: swarm, records, blobs, rounds, checkpoints and error feedback are the product's. The
stand-in chain is a folder of commitments and a clock that all peers share.
"""

from __future__ import annotations

import asyncio
import faulthandler
import hashlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from chaos_study.ledger import BookkeepingMiner, Trainer
from chaos_study.plan import Plan
from chaos_study.processes import LEFT_FILE
from subnet.chain.clock import BlockClock
from subnet.chain.errors import ChainUnreachable
from subnet.chain.flags import ChainFlags
from subnet.chain.keys import Hotkey, hotkey_from_uri
from subnet.chain.metagraph import Metagraph, Row
from subnet.config import NodeConfig, RunConfig
from subnet.diloco.inner import InnerResult
from subnet.exchange.round import Round
from subnet.neuron import Neuron
from subnet.swarm.errors import SwarmError
from subnet.swarm.process import die_with_parent
from subnet.swarm.wire import Stream, WireError


@dataclass(frozen=True)
class Place:
    """Which peer this is, in which of its lives, in which run. `epoch` is the monotonic time of block 0."""

    index: int
    life: int
    plan: Plan
    run: RunConfig
    folder: Path
    epoch: float
    block_time: float

    @property
    def home(self) -> Path:
        return self.folder / str(self.index)

    @property
    def signer(self) -> Hotkey:
        return signer(self.index)

    @property
    def height(self) -> float:
        """The chain's height, with a fraction."""
        return (time.monotonic() - self.epoch) / self.block_time


def signer(index: int) -> Hotkey:
    """The hotkey of a peer."""
    return hotkey_from_uri(f"//chaos-{index}")


def live(place: Place) -> None:
    """The body of a peer's process. It exits as a neuron does: 0 after SIGTERM, 1 without its daemon or the chain."""
    die_with_parent(os.getppid(), lambda: None)
    place.home.mkdir(parents=True, exist_ok=True)
    words = os.open(place.home / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(words, 1)
    os.dup2(words, 2)
    faulthandler.enable()
    logging.basicConfig(
        level="INFO", stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s: %(message)s", force=True
    )
    logging.getLogger("hivemind").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    try:
        asyncio.run(_live(place))
    except (SwarmError, ChainUnreachable) as error:
        logging.error("%s", error)
        sys.exit(1)


async def _live(place: Place) -> None:
    chain = SharedChain(place)
    with (
        patch("subnet.neuron.Chain", SimpleNamespace(connect=chain.connect)),
        patch("subnet.neuron.preflight", chain.preflight),
        patch("subnet.neuron.load_hotkey", lambda *_: place.signer),
        patch("subnet.neuron._prepare", lambda *_: SimpleNamespace(manifest_hash="00" * 32, vocab_size=0)),
    ):
        node = NodeConfig(home=place.home, host="127.0.0.1", wandb="disabled")
        neuron = await Neuron.start("miner", ChainFlags(1, "chaos", "", "", ""), node, place.run)
    resumed = -1 if neuron.resumed is None else neuron.resumed.meta["round"]
    neuron.telemetry.event("begun", life=place.life, resumed=resumed)
    _cut_links(place, neuron)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, neuron.stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, _tell_tasks)
    miner = BookkeepingMiner(neuron, SyntheticTraining(neuron, place))  # type: ignore[arg-type]
    try:
        await miner.run()
    finally:
        await neuron.stop()
    await asyncio.sleep(0)  # for those that have just been cancelled
    left = [repr(task.get_coro()) for task in asyncio.all_tasks() - {asyncio.current_task()} if not task.done()]
    (place.home / LEFT_FILE).write_text(json.dumps(left))


def _tell_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack()


def _cut_links(place: Place, neuron: Neuron) -> None:
    """Have libp2p fail to reach those whom the plan cuts off from this peer, at once or after saying nothing."""
    dialer = neuron.swarm._dialer
    reach: Callable[..., Awaitable[Stream]] = dialer.open

    async def open_unless_cut(peer_id: str, maddrs: Any, protocol: str, seconds: float) -> Stream:
        book = neuron.swarm._book
        for other in range(place.plan.peers):
            known = book.find(signer(other).ss58) if other != place.index else None
            if known is None or known.peer_id != peer_id:
                continue
            for blow in place.plan.active(place.height):
                if blow.severs(place.index, other):
                    await asyncio.sleep(seconds if blow.silent else 0.0)
                    raise WireError("cannot be reached")
        return await reach(peer_id, maddrs, protocol, seconds)

    dialer.open = open_unless_cut  # type: ignore[method-assign]


class SharedChain:
    """As much of `subnet.chain.client.Chain` as a miner uses."""

    endpoint = "chaos"

    def __init__(self, place: Place) -> None:
        self.place = place
        self._follower: asyncio.Task[None] | None = None

    @property
    def in_reach(self) -> bool:
        struck = [blow for blow in self.place.plan.active(self.place.height) if blow.kind == "chain"]
        return not any(blow.victim == self.place.index for blow in struck)

    async def connect(self, network: str) -> SharedChain:
        return self

    async def preflight(self, *_: Any) -> None:
        """Everybody is registered."""

    async def identity(self) -> bytes:
        return hashlib.blake2b(b"chaos %d" % self.place.plan.seed, digest_size=32).digest()

    async def hyperparameters(self, netuid: int) -> Any:
        return None

    async def clock(self) -> BlockClock:
        clock = BlockClock(int(self.place.height), self.place.block_time, self._block_hash)
        self._follower = asyncio.create_task(self._follow(clock))
        return clock

    async def metagraph(self, netuid: int, block: int | None = None) -> Metagraph:
        self._demand()
        rows = []
        for uid in range(self.place.plan.peers):
            hotkey = signer(uid).ss58
            file = self.place.folder / "chain" / hotkey
            commitment = file.read_bytes() if file.exists() else None
            rows.append(Row(uid, hotkey, hotkey, 1.0, 0.0, 0.0, 0.0, False, 0, 0, commitment))
        return Metagraph(netuid, int(self.place.height), 1000, 0, rows[0].hotkey, rows[0].hotkey, tuple(rows))

    async def commit(self, netuid: int, hotkey: Hotkey, data: bytes) -> None:
        self._demand()
        file = self.place.folder / "chain" / hotkey.ss58
        draft = file.with_suffix(".draft")
        draft.write_bytes(data)
        draft.replace(file)

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()

    async def _block_hash(self, block: int) -> bytes:
        self._demand()
        return hashlib.blake2b(b"chaos %d %d" % (self.place.plan.seed, block), digest_size=32).digest()

    async def _follow(self, clock: BlockClock) -> None:
        while True:
            await asyncio.sleep((1.0 - self.place.height % 1.0) * self.place.block_time)
            if self.in_reach:
                clock.observe(int(self.place.height))

    def _demand(self) -> None:
        if not self.in_reach:
            raise ChainUnreachable("the chain does not answer")


class SyntheticTraining:
    """Pseudo-gradients drawn from a seed, ready when the plan says so."""

    seconds = 0.0
    recorded = None

    def __init__(self, neuron: Neuron, place: Place) -> None:
        self.neuron = neuron
        self.place = place
        self.trainer = Trainer(neuron.layout.numel)

    async def round(self, round_: Round) -> InnerResult:
        index, place, train = round_.window.round, self.place, self.neuron.run.train
        await self.neuron.wait_for(place.plan.training_ends(place.index, index))
        chance = torch.Generator().manual_seed(hash((place.plan.seed, index, place.index, place.life)) & (2**62 - 1))
        theta = self.neuron.state.theta
        self.trainer.local = theta - torch.randn(theta.numel(), generator=chance) * train.lr
        tokens = train.inner_steps * train.batch_size * self.neuron.run.model.seq_len
        return InnerResult(train.inner_steps, tokens)

    async def close(self) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
