"""Peers of a round in one process: every one has its own libp2p daemon and DHT process; the test moves the blocks.

`village` is shared by the package: a test takes as many peers as it wants, in a round of its own, and may end them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from subnet.chain.keys import Hotkey, hotkey_from_uri
from subnet.config import ModelConfig, NodeConfig, load_run, run_id
from subnet.diloco.aggregate import norm, reduce_part
from subnet.diloco.codec import codec_of, decode_part, encode_part, encode_tree
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.exchange.butterfly import ReducedPart
from subnet.exchange.commitment import Contribution
from subnet.exchange.roster import Member, Roster
from subnet.exchange.round import Facts, Round, Update
from subnet.exchange.session import Exchange
from subnet.exchange.window import Window
from subnet.model.presets import parameter_shapes
from subnet.swarm.network import Swarm

os.environ.setdefault("OMP_NUM_THREADS", "1")

T = TypeVar("T")

DEMO = load_run("demo")
RUN = replace(
    DEMO,
    model=ModelConfig("custom", 264, hidden_size=8, intermediate_size=8, num_layers=1, num_heads=1, num_kv_heads=1,
                      seq_len=8),
    codec=replace(DEMO.codec, block=32, leaf_size=128),
    rounds=replace(DEMO.rounds, newcomers=1),
)  # fmt: skip
LAYOUT = Layout.of(parameter_shapes(RUN.model).items(), RUN.codec.leaf_size)
CODEC = codec_of(RUN.codec)
SIGNERS = [hotkey_from_uri(f"//exchange-{i}") for i in range(8)]
STATE = b"s" * 32
PATIENCE = 8.0
"""Seconds a fetch gets in tests in which somebody is gone: it is lost time, yet must do for everybody else."""
DEADLINE = 150.0


class HandClock:
    """A block clock that stands still until a test moves it. `patience`: how many seconds off it says the future is."""

    def __init__(self) -> None:
        self.patience = DEADLINE
        self._block = 0.0
        self._moved = asyncio.Event()

    def block(self) -> float:
        return self._block

    def seconds_until(self, block: float) -> float:
        return self.patience if block > self._block else 0.0

    async def wait_until(self, block: float) -> None:
        while self._block < block:
            await self._moved.wait()

    def move_to(self, block: float) -> None:
        self._block = float(block)
        self._moved.set()
        self._moved = asyncio.Event()


@dataclass
class Row:
    hotkey: str
    commitment: bytes | None = None
    permit: bool = False


@dataclass
class Rows:
    """As much of a metagraph as the swarm reads."""

    rows: list[Row]


@dataclass
class Peer:
    signer: Hotkey
    swarm: Swarm
    exchange: Exchange

    @property
    def hotkey(self) -> str:
        return self.signer.ss58

    def refusals(self, hotkey: str) -> dict[str, int]:
        """How often this peer dropped something of `hotkey`, by reason."""
        return {reason: count for (whose, reason), count in self.exchange.refusals.counted.items() if whose == hotkey}


class Village:
    """Up to eight peers, started when first needed and again after a test has ended them, and their common clock."""

    def __init__(self, homes: Path, loop_thread: Any) -> None:
        self.homes = homes
        self.loop_thread = loop_thread
        self.clock = HandClock()
        self.running: dict[int, Peer] = {}
        self.round = 100

    def run(self, work: Coroutine[Any, Any, T], seconds: float = DEADLINE) -> T:
        """Have `work` done; TimeoutError after `seconds`."""
        result: T = self.loop_thread.run(work, seconds)
        return result

    async def assemble(self, n: int) -> list[Peer]:
        """The first `n` peers, all of which know each other."""
        for i in range(n):
            if i not in self.running:
                self.running[i] = await self._start(i)
        peers = [self.running[i] for i in range(n)]
        everybody = {p.hotkey for p in peers}
        await until(lambda: all(everybody <= {p.hotkey, *p.swarm.peers} for p in peers))
        return peers

    async def open_round(
        self, n: int, permits: Sequence[int] = (), earning: Sequence[int] = (), redundancy: int = 1
    ) -> Play:
        """A new round at its first block with `n` members, of which some validate or earn (by index)."""
        self.round += 1
        window = Window.of_round(RUN.rounds, self.round)
        self.clock.patience = DEADLINE
        self.clock.move_to(window.start)
        peers = await self.assemble(n)
        for peer in self.running.values():
            await peer.swarm.enter_round(self.round, {s.ss58 for s in SIGNERS})
            peer.exchange.refusals.counted.clear()
            peer.exchange.run = replace(RUN, aggregate=replace(RUN.aggregate, redundancy=redundancy))
            peer.swarm.store.drop_before(self.round)
        members = {p.hotkey: Member(p.hotkey, float(i in earning), i in permits) for i, p in enumerate(peers)}
        facts = asyncio.ensure_future(_known(Facts(self.round.to_bytes(32, "big"), members)))
        return Play(self, Round(window, facts), peers)

    async def end(self, peer: Peer) -> None:
        """Have a peer vanish: its processes end, nobody is told."""
        del self.running[next(i for i, p in self.running.items() if p is peer)]
        await peer.swarm.stop()

    async def close(self) -> None:
        """End everybody."""
        await asyncio.gather(*(peer.swarm.stop() for peer in self.running.values()))
        self.running.clear()

    async def hide(self, i: int) -> None:
        """Start a peer again as one that nobody can dial: libp2p itself tells others an address that is closed."""
        await self.end(self.running[i])
        self.running[i] = await self._start(i, reachable=False, announce=("/ip4/127.0.0.1/tcp/1",))

    async def _start(self, i: int, **settings: Any) -> Peer:
        node = NodeConfig(home=self.homes / str(i), host="127.0.0.1", wandb="disabled", **settings)
        bootstrap = [m for peer in self.running.values() for m in peer.swarm.maddrs]
        registered = Rows([Row(s.ss58) for s in SIGNERS])
        swarm = await Swarm.start(node, SIGNERS[i], RUN, registered, self.clock.block, bootstrap=bootstrap)
        exchange = Exchange(RUN, run_id(RUN), LAYOUT, swarm, self.clock, SIGNERS[i])  # type: ignore[arg-type]
        return Peer(SIGNERS[i], swarm, exchange)


@dataclass
class Play:
    """One round, acted out phase by phase. `contributions` are by hotkey."""

    village: Village
    round: Round
    peers: list[Peer]
    state: bytes = STATE
    contributions: dict[str, Contribution] = field(default_factory=dict)

    @property
    def window(self) -> Window:
        return self.round.window

    @property
    def clock(self) -> HandClock:
        return self.village.clock

    def others(self, *gone: Peer) -> list[Peer]:
        return [p for p in self.peers if p not in gone]

    async def commit(self, peers: Sequence[Peer] | None = None) -> None:
        """Everybody commits to random values (or those in `contributions`) and sees all other commitments."""
        peers = self.peers if peers is None else peers
        for peer in peers:
            seed = SIGNERS.index(peer.signer) + 100 * self.window.round
            self.contributions.setdefault(peer.hotkey, contribution(random_values(seed), tokens=100 + seed % 7))
            assert await peer.exchange.commit(self.round, self.contributions[peer.hotkey], self.state)
        await self.all_see("commit", {p.hotkey for p in peers})

    async def all_see(self, kind: str, hotkeys: set[str], by: Sequence[Peer] | None = None) -> None:
        """Until the records of these hotkeys have reached everybody."""
        for peer in self.peers if by is None else by:
            while not hotkeys <= {r.hotkey for r in await peer.swarm.records(kind, self.window.round)}:
                await asyncio.sleep(0.05)

    async def agree(self, peers: Sequence[Peer] | None = None) -> list[Roster]:
        """The commit deadline passes; the roster each of `peers` accepts."""
        self.clock.move_to(max(self.clock.block(), self.window.commit_end))
        tasks = [asyncio.ensure_future(self.agreeing(p)) for p in (self.peers if peers is None else peers)]
        _, waiting = await asyncio.wait(tasks, timeout=PATIENCE)
        if waiting:
            # Somebody still counts a peer as live that another test ended: the protocol's answer is the deadline.
            self.clock.move_to(max(self.clock.block(), self.window.roster_end))
        found = await asyncio.gather(*tasks)
        return [roster for roster in found if roster is not None]

    def agreeing(self, peer: Peer) -> Any:
        return peer.exchange.agree_on_roster(self.round, self.contributions.get(peer.hotkey), self.state)

    async def reducing(self, peer: Peer, roster: Roster) -> ReducedPart | None:
        """The one part that this peer reduces (without redundancy)."""
        parts = await peer.exchange.reduce(self.round, roster)
        return parts[0] if parts else None

    def gathering(self, peer: Peer, roster: Roster, reduced: ReducedPart | None) -> Any:
        return peer.exchange.gather(self.round, roster, [reduced] if reduced is not None else [])

    async def gather(
        self, peers: Sequence[Peer], roster: Roster, reduced: Sequence[ReducedPart | None], missing: Sequence[int] = ()
    ) -> list[Update]:
        """All of `peers` gather; the gather deadline passes once each has every part of `reduced` but the `missing`."""
        tasks = [asyncio.ensure_future(self.gathering(p, roster, r)) for p, r in zip(peers, reduced, strict=True)]
        silent = {roster.commitments[part].hotkey for part in missing}
        roots = [r.root for p, r in zip(peers, reduced, strict=True) if r is not None and p.hotkey not in silent]
        await until(lambda: all(p.swarm.store.entry(root) for p in peers for root in roots))
        self.clock.move_to(self.window.gather_end)
        return list(await asyncio.gather(*tasks))

    async def average(self, peers: Sequence[Peer] | None = None) -> list[Update]:
        """Roster, scatter, reduce and gather of `peers` with nothing going wrong between them."""
        peers = self.peers if peers is None else peers
        rosters = await self.agree(peers)
        assert len(rosters) == len(peers) and len({r.root for r in rosters}) == 1
        reduced = await asyncio.gather(*(self.reducing(p, rosters[0]) for p in peers))
        return await self.gather(peers, rosters[0], reduced)

    def expected(self, update: Update) -> torch.Tensor:
        """What `update.delta` must be, from the contributions themselves and who is said to be in each part."""
        return reference(update, self.contributions)


def random_values(seed: int) -> torch.Tensor:
    """As large as a round's inner steps make them."""
    return torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(seed)) * RUN.train.lr


def contribution(values: torch.Tensor, tokens: int = 100) -> Contribution:
    """An honest contribution of these pseudo-gradient values."""
    leaves = encode_tree(CODEC, LAYOUT, values)
    return Contribution(leaves, Tree(hash_leaves(leaves)), norm(decoded(leaves)), tokens, 2)


def decoded(leaves: Sequence[bytes]) -> torch.Tensor:
    return decode_part(CODEC, LAYOUT, leaves, 0, LAYOUT.num_leaves)


def reference(update: Update, contributions: dict[str, Contribution]) -> torch.Tensor:
    """The mean of each part over those in it, put through the output codec; zero where the part is missing."""
    delta = torch.zeros(LAYOUT.numel)
    mean = update.roster.mean
    for part, (start, stop) in enumerate(update.roster.parts(LAYOUT)):
        if part in update.missing:
            continue
        first, last = LAYOUT.span(start, stop)
        values = [
            decoded(contributions[c.hotkey].leaves)[first:last] if c.hotkey in update.results[part].included else None
            for c in mean
        ]
        exact = reduce_part(values, [c.tokens for c in mean], [c.norm for c in mean])
        leaves = encode_part(CODEC, LAYOUT, exact, start, stop)
        delta[first:last] = decode_part(CODEC, LAYOUT, leaves, start, stop)
    return delta


async def _known(facts: Facts) -> Facts:
    return facts


async def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Return once `condition()` holds; TimeoutError after `seconds`."""
    limit = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > limit:
            raise TimeoutError("the condition never came true")
        await asyncio.sleep(0.02)


@pytest.fixture(scope="package")
def village(tmp_path_factory: pytest.TempPathFactory, loop_thread: Any) -> Iterator[Village]:
    village = Village(tmp_path_factory.mktemp("village"), loop_thread)
    yield village
    village.run(village.close())
