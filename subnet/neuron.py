"""What a miner and a validator have in common: identity, chain, swarm, the consensus state and its rounds.

A neuron starts with every check that can fail (`start`), then yields rounds by the block clock (`rounds`), and ends
each with the outer step and the agreement on one state (`finish`). Training and scoring are the roles' own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from subnet.chain.client import Chain, Hyperparameters
from subnet.chain.clock import BlockClock
from subnet.chain.errors import ChainRefused, ChainUnreachable, NoSuchSubnet
from subnet.chain.flags import ChainFlags
from subnet.chain.keys import Hotkey, load_hotkey
from subnet.chain.metagraph import Metagraph
from subnet.chain.preflight import preflight
from subnet.config import NodeConfig, RunConfig, run_id, with_manifest
from subnet.data.prepare import prepare
from subnet.data.shards import Shards
from subnet.diloco import checkpoint
from subnet.diloco.layout import Layout
from subnet.diloco.outer import outer_step
from subnet.diloco.saver import Saver
from subnet.diloco.state import OuterState
from subnet.errors import UserError
from subnet.exchange.agreement import Consensus
from subnet.exchange.claims import Agreement
from subnet.exchange.fetch import Stepping
from subnet.exchange.majority import standings
from subnet.exchange.roster import Member
from subnet.exchange.round import Facts, Round, Update
from subnet.exchange.session import Exchange
from subnet.exchange.window import Window
from subnet.home import check_folders, shards_folder, shared_folder
from subnet.model.build import init_theta
from subnet.model.presets import parameter_shapes
from subnet.progress import Progress, size
from subnet.swarm.lock import FileLock, claim_hotkey
from subnet.swarm.network import Swarm
from subnet.telemetry import Telemetry
from subnet.waiting import timeout

log = logging.getLogger(__name__)

KEPT_ROUNDS = 2
"""Rounds whose blobs are served: this one and the last, which validators still score."""
MAX_UIDS = 256
"""Uids a subnet holds; the data is shared among so many, registered or not, so that a newcomer moves nobody's share."""


CHECKPOINTS = "checkpoints"
"""Folder of the local checkpoints, in the state folder."""
COMPUTE_NICENESS = 10
"""Scheduling priority of the compute thread and of the torch threads it starts (Linux: per thread, inherited)."""

LAST_SAVE_SECONDS = 600.0
"""How long a neuron that leaves waits for the checkpoint that is being written."""
MEETING_SECONDS = 3.0
"""Pause between two looks at the chain while no peer has been met."""

T = TypeVar("T")


def layout_of(run: RunConfig) -> Layout:
    """The canonical layout of a run's parameters."""
    return Layout.of(parameter_shapes(run.model).items(), run.codec.leaf_size)


def genesis(run: RunConfig, layout: Layout) -> OuterState:
    """The state every run starts from: initial parameters from the run's seed, no momentum, outer step 0."""
    theta = layout.flatten(init_theta(run.model, run.seed))
    return OuterState(theta, torch.zeros_like(theta), 0, layout)


@dataclass
class Neuron:
    """A running peer, from its start to its leave; the roles add what they do in a round."""

    role: str
    flags: ChainFlags
    node: NodeConfig
    run: RunConfig
    run_id: bytes
    signer: Hotkey
    chain: Chain
    chain_id: bytes
    """Tells chains apart: see `Chain.identity`."""
    clock: BlockClock
    swarm: Swarm
    exchange: Exchange
    shards: Shards
    layout: Layout
    consensus: Consensus
    telemetry: Telemetry
    metagraph: Metagraph
    hyperparameters: Hyperparameters
    claim: FileLock
    """This process's sole use of the hotkey."""
    resumed: checkpoint.Checkpoint | None
    """The local checkpoint this neuron started from, until its role has taken over what is its own."""
    saver: Saver
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _compute: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "compute", initializer=_yield_to_the_network)
    )
    _reported: tuple[int, int] = (0, 0)
    _meeting: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, role: str, flags: ChainFlags, node: NodeConfig, run: RunConfig) -> Neuron:
        """Check everything a user can get wrong, then join the swarm. The state is the local checkpoint's or genesis.

        Raises:
            UserError: one line with the remedy; nothing is left running and nothing was written but caches.
        """
        signer = load_hotkey(flags.wallet_name, flags.wallet_hotkey, flags.wallet_path)
        check_folders(node.home)
        chain = await Chain.connect(flags.network)
        claim: FileLock | None = None
        try:
            await preflight(chain, flags.netuid, signer.ss58, role, flags.btcli_wallet)
            chain_id = await chain.identity()
            claim = claim_hotkey(shared_folder(), signer.ss58, flags.netuid, chain_id, node.home)
            shards = await asyncio.to_thread(_prepare, run, node)
            run = with_manifest(run, shards.manifest_hash)
            if shards.vocab_size > run.model.vocab_size:
                raise UserError(
                    f"the tokenizer has {shards.vocab_size} tokens, the run's model only {run.model.vocab_size}: "
                    "raise model.vocab_size in the run file, or use the run's own tokenizer"
                )
            clock = await chain.clock()
            metagraph = await chain.metagraph(flags.netuid)
            hyperparameters = await chain.hyperparameters(flags.netuid)
            layout = layout_of(run)
            saved = await asyncio.to_thread(_resume, node, run, chain_id, layout)
            state = saved.state if saved else await asyncio.to_thread(genesis, run, layout)
            swarm = await Swarm.start(node, signer, run, metagraph, clock.block)
        except BaseException:
            if claim is not None:
                claim.release()
            await chain.close()
            raise
        exchange = Exchange(run, run_id(run), layout, swarm, clock, signer)
        stepping = Stepping(exchange.scheme.reduced, run.outer)
        consensus = Consensus(swarm, clock, run.rounds, stepping, node.home, state, exchange.refusals.drop)
        telemetry = Telemetry(node.home, role, signer.ss58, node.wandb, run.name)
        neuron = cls(
            role, flags, node, run, run_id(run), signer, chain, chain_id, clock, swarm, exchange, shards, layout,
            consensus, telemetry, metagraph, hyperparameters, claim, saved,
            Saver(node.home / CHECKPOINTS, node.checkpoints),
        )  # fmt: skip
        await neuron._publish_address()
        neuron._meeting = asyncio.create_task(neuron._meet_others())
        log.info(
            "%s %s, uid %s of subnet %d, run %s (%s), %d parameters, state at outer step %d",
            role, signer.ss58, metagraph.uid_of(signer.ss58), flags.netuid, run.name, neuron.run_id.hex()[:16],
            layout.numel, state.step,
        )  # fmt: skip
        return neuron

    @property
    def state(self) -> OuterState:
        """The consensus state; it is replaced whole after each round, never changed in place."""
        return self.consensus.state

    @property
    def _severity(self) -> int:
        """Of a read that failed: no news while the chain is known to be out of reach."""
        return logging.WARNING if self.chain.in_reach else logging.DEBUG

    @property
    def uid(self) -> int | None:
        """This hotkey's uid at the last metagraph read."""
        return self.metagraph.uid_of(self.signer.ss58)

    async def rounds(self) -> AsyncIterator[Round]:
        """Rounds from the next one that can still be trained in, until `stopping` is set.

        Before each is yielded the metagraph is read at its first block, and a state behind the majority's is repaired.
        """
        self.telemetry.event("ready", step=self.state.step)
        last = -1
        while not self.stopping.is_set():
            window = Window.at(self.run.rounds, self.clock.block())
            if window.round <= last or self.clock.block() >= window.train_end:
                window = Window.of_round(self.run.rounds, window.round + 1)
            if not await self.wait_for(window.start):
                return
            last = window.round
            await self._enter_round(window.round)
            self._tell_repair(window, await self.consensus.catch_up(window, standings(self.metagraph.rows)))
            facts = asyncio.create_task(self._facts(window))
            yield Round(window, facts)
            facts.cancel()

    async def _meet_others(self) -> None:
        """Until somebody is met, read again who has put an address on chain: peers may have started together."""
        while not self.swarm.peers:
            await asyncio.sleep(max(MEETING_SECONDS, self.clock.block_time))
            with contextlib.suppress(ChainUnreachable):
                self.swarm.meet(await self.chain.metagraph(self.flags.netuid))

    async def wait_for(self, block: float) -> bool:
        """False when the neuron is told to stop before `block`."""
        wait = asyncio.create_task(self.clock.wait_until(block))
        stop = asyncio.create_task(self.stopping.wait())
        await asyncio.wait([wait, stop], return_when=asyncio.FIRST_COMPLETED)
        wait.cancel()
        stop.cancel()
        return not self.stopping.is_set()

    async def finish(self, round_: Round, update: Update | None) -> Agreement:
        """Take the outer step with what was gathered, publish the digest, and repair if the majority holds another.

        Without a roster the state stays as it was: a round in which nobody was averaged changes nothing.
        """
        if update is not None:
            state = await asyncio.to_thread(self._outer_step, update.delta)
            self.consensus.step(state, self.exchange.leaves_of(update))
        expected = {self.signer.ss58, *(self.swarm.peers.keys() & self.metagraph.by_hotkey.keys())}
        agreement = await self.consensus.settle(round_.window, standings(self.metagraph.rows), expected)
        self._tell_repair(round_.window, agreement)
        return agreement

    async def beacon(self, block: int, deadline_block: float) -> bytes:
        """The hash of `block`; a predictable stand-in when the chain does not give it before `deadline_block`."""
        try:
            return await self._by(deadline_block, self.clock.hash_of(block, self.clock.seconds_until(deadline_block)))
        except ChainUnreachable as error:
            log.log(self._severity, "block %d: %s; using a predictable beacon", block, error)
            return hashlib.blake2b(self.run_id + block.to_bytes(8, "big"), digest_size=32).digest()

    async def compute(self, work: Callable[..., T], *args: Any) -> T:
        """Run training or evaluation in this neuron's one compute thread, which leaves the network the first turn."""
        return await asyncio.get_running_loop().run_in_executor(self._compute, work, *args)

    async def save(
        self,
        round_: Round,
        feedback: torch.Tensor | None = None,
        inner: Callable[[], Mapping[str, torch.Tensor]] | None = None,
    ) -> None:
        """Have a checkpoint written of the round: the state and what is this node's own, while the loop goes on.

        What cannot be written (a full disk), or not before the next round ends, is told and left out. `feedback` must
        not be changed in place before `saved`.
        """
        index = round_.window.round
        if not await self.saver.settled(0.0):
            log.warning("round %d: the last checkpoint is still being written; there is none of this round", index)
            return
        meta = {"run_id": self.run_id.hex(), "chain": self.chain_id.hex(), "round": index}
        own = {} if inner is None else await self.compute(inner)
        step, loop = self.state.step, asyncio.get_running_loop()

        def tell(ok: bool) -> None:
            self.telemetry.event("checkpoint", round=index, step=step, ok=ok)

        writing = self.saver.begin(self.state, feedback, own, meta)
        writing.add_done_callback(
            lambda done: None if done.exception() else loop.call_soon_threadsafe(tell, done.result())
        )

    async def saved(self, block: float) -> None:
        """Wait for the checkpoint that is being written, until `block` at the latest."""
        if not await self.saver.settled(self.clock.seconds_until(block)):
            log.warning("the last round's checkpoint is not written yet; a crash would now cost that round too")

    def enter(self, phase: str, round_: Round) -> None:
        """Tell the outside which phase this neuron is in."""
        self.telemetry.event("phase", phase=phase, round=round_.window.round, block=int(self.clock.block()))

    def report(self, round_: Round, update: Update | None, agreement: Agreement, told: str = "", **values: Any) -> None:
        """Tell the outside how a round went: `told` for people, `values` for machines, both of the role's own work.

        `up` and `down` are payload bytes since the last report.
        """
        traffic = self.swarm.traffic
        before, self._reported = self._reported, (sum(traffic.up.values()), sum(traffic.down.values()))
        up, down = (now - then for now, then in zip(self._reported, before, strict=True))
        self.telemetry.event(
            "round",
            round=round_.window.round,
            step=self.state.step,
            digest=self.state.digest().hex(),
            agreed=agreement.agreed,
            holders=len(agreement.majority.holders) if agreement.majority else 1,
            peers=len(self.swarm.peers),
            averaged=update.roster.averaged if update else 0,
            contributed=update is not None and any(self.signer.ss58 in r.included for r in update.results.values()),
            missing=len(update.missing) if update else 0,
            dropped=sum(self.exchange.refusals.counted.values()) + sum(self.swarm.rejected.values()),
            up=up,
            down=down,
            **values,
        )
        log.info(
            "round %d: %sstep %d, %d averaged, %d parts missing, digest %s, %s up, %s down",
            round_.window.round, f"{told}; " if told else "", self.state.step, update.roster.averaged if update else 0,
            len(update.missing) if update else 0, self.state.digest().hex()[:8], size(up), size(down),
        )  # fmt: skip

    async def stop(self) -> None:
        """Leave the swarm and the chain; leaves no process behind."""
        if self._meeting is not None:
            self._meeting.cancel()
        await self.swarm.stop()
        try:
            if not await self.saver.settled(LAST_SAVE_SECONDS):
                log.warning("left without the last checkpoint: it is not written after %.0f s", LAST_SAVE_SECONDS)
        finally:
            self.claim.release()
            await self.chain.close()
            self.telemetry.close()

    async def _enter_round(self, round_index: int) -> None:
        self.swarm.meet(self.metagraph)
        await self.swarm.enter_round(round_index, self.metagraph.by_hotkey)
        self.swarm.store.drop_before(round_index - KEPT_ROUNDS + 1)

    async def _facts(self, window: Window) -> Facts:
        """The round's beacon and the metagraph at its first block; the last known ones if the chain is out of reach."""
        beacon = await self.beacon(window.start, window.commit_end)
        try:
            read = self.chain.metagraph(self.flags.netuid, block=window.start)
            self.metagraph = await self._by(window.commit_end, read)
        except (ChainUnreachable, NoSuchSubnet) as error:  # the subnet may be younger than the round
            log.log(self._severity, "round %d: %s; going on with the last metagraph", window.round, error)
        await self._enter_round(window.round)
        return Facts(beacon, {r.hotkey: Member(r.hotkey, r.incentive, r.permit) for r in self.metagraph.rows})

    async def _by(self, block: float, read: Awaitable[T]) -> T:
        """The answer of the chain, if it comes before `block`; else ChainUnreachable."""
        try:
            async with timeout(self.clock.seconds_until(block)):
                return await read
        except asyncio.TimeoutError as error:
            raise ChainUnreachable(f"{self.chain.endpoint} has not given it in time") from error

    def _tell_repair(self, window: Window, agreement: Agreement) -> None:
        found, leaves, received = agreement.majority, agreement.repaired_leaves, agreement.repaired_bytes
        if not agreement.agreed and found is not None and found.digest == self.state.digest():
            self.telemetry.event("repair", round=window.round, step=self.state.step, leaves=leaves, bytes=received)

    def _outer_step(self, delta: torch.Tensor) -> OuterState:
        outer, state = self.run.outer, self.state
        theta, momentum = outer_step(state.theta, state.momentum, delta, outer.lr, outer.momentum, outer.nesterov)
        return OuterState(theta, momentum, state.step + 1, self.layout)

    async def _publish_address(self) -> None:
        """Write where this peer is on chain, unless it says so already; too often is no harm: the DHT knows it too."""
        commitment = self.swarm.commitment.pack()
        row = self.metagraph.by_hotkey.get(self.signer.ss58)
        if row is not None and row.commitment == commitment:
            return
        try:
            await self.chain.commit(self.flags.netuid, self.signer, commitment)
        except (ChainRefused, ChainUnreachable) as error:
            log.warning("this peer's address is not on chain yet: %s", error)


def _yield_to_the_network() -> None:
    """Lower this thread's priority: a busy core must not make the event loop and the libp2p daemon miss a deadline."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), COMPUTE_NICENESS)


def _resume(node: NodeConfig, run: RunConfig, chain_id: bytes, layout: Layout) -> checkpoint.Checkpoint | None:
    """The local checkpoint of this run on this chain.

    Raises UserError when the folder holds another run's or another chain's: it must not be lost.
    """
    folder = node.home / CHECKPOINTS
    saved = checkpoint.load(folder, layout)
    if saved is None:
        return None
    if saved.meta["run_id"] != run_id(run).hex():
        raise UserError(f"{folder} holds the checkpoints of another run; move them away, or choose another --home")
    if saved.meta.get("chain") != chain_id.hex():
        raise UserError(
            f"{folder} holds the checkpoints of another chain (a development chain that was begun afresh?); "
            "move them away, or choose another --home"
        )
    return saved


def _prepare(run: RunConfig, node: NodeConfig) -> Shards:
    if node.data_path is not None and run.data.source == "stdlib":
        raise UserError(
            f"--data.path {node.data_path} cannot be used: the run trains on Python's own sources (data.source is "
            "'stdlib'); leave the flag out, or choose a run with data.source 'folder' or 'shards'"
        )
    data = run.data if node.data_path is None else replace(run.data, path=str(node.data_path))
    return prepare(data, shards_folder(), run.model.seq_len, Progress(_log_data))


def _log_data(done: int, total: int) -> None:
    log.info("tokenising: %s of %s", size(done), size(total))
