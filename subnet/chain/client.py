"""The connection to one Subtensor chain: what a neuron reads there, and the two things its hotkey writes.

Not a wrapper of the SDK: only what this project needs, each call bounded in time and frugal with requests (public
endpoints allow about one a second). Reconnecting is the SDK's; a call that fails meanwhile raises ChainUnreachable.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import bittensor as bt
from bittensor import settings

from subnet.chain import metagraph as graphs
from subnet.chain import rpc
from subnet.chain.clock import BlockClock
from subnet.chain.errors import BlockMissing, ChainRefused, ChainUnreachable, NoSuchSubnet
from subnet.chain.keys import Hotkey
from subnet.errors import UserError

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_TIMEOUT = 15.0
CLOSE_SECONDS = 1.0
READ_TIMEOUT = 15.0
"""Seconds for one read, several requests at most."""
SUBMIT_BLOCKS = 8
"""Blocks, beyond READ_TIMEOUT, within which a transaction must be in a block."""
SILENCE = 5
"""Blocks without a new head, and at least 20 s, after which a subscription counts as dead."""
PAUSE_BLOCKS = 3
"""Blocks between two attempts to follow a chain out of reach: peers must not learn of its return far apart."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
"""Seconds that bound PAUSE_BLOCKS."""
HASHES_KEPT = 4096
METAGRAPHS_KEPT = 8
BLOCK_TIME_SPAN = 20
"""Blocks over which the block time is measured at the start."""


@dataclass(frozen=True)
class Head:
    """A block at the tip of the chain."""

    number: int
    hash: bytes
    """32 bytes."""


@dataclass(frozen=True)
class Hyperparameters:
    """A subnet's settings that a neuron heeds."""

    tempo: int
    """Blocks per epoch."""
    weights_rate_limit: int
    """Blocks a validator must let pass between two settings of weights."""
    weights_version: int
    """Lowest version key accepted with weights."""
    min_allowed_weights: int
    """Fewest non-zero weights accepted."""
    commit_reveal: bool
    """Whether weights are committed encrypted and revealed `commit_reveal_period` epochs later."""
    commit_reveal_period: int
    max_validators: int
    immunity_period: int
    """Blocks after registration during which a hotkey cannot be replaced."""


@dataclass(frozen=True)
class WeightsOutcome:
    """What became of an attempt to set weights: `ok`, or to be tried again after `wait_blocks`, or `refused`."""

    ok: bool
    committed: bool = False
    """They are on chain encrypted, and count once revealed."""
    wait_blocks: int = 0
    """Refused only for coming too early: try again after so many blocks."""
    refused: str = ""
    """Why trying again unchanged will not help, and what would."""

    def __str__(self) -> str:
        if self.ok:
            return "set, hidden until they are revealed" if self.committed else "set"
        why = f"not set: {self.refused}" if self.refused else "not set: it is too early"
        blocks = "1 block" if self.wait_blocks == 1 else f"{self.wait_blocks} blocks"
        return f"{why}; trying again in {blocks}" if self.wait_blocks else why


class Chain:
    """An open connection. Make one with `connect`; close it with `close`."""

    def __init__(self, network: str) -> None:
        label, self.endpoint = settings.resolve_endpoint(network)
        self._substrate = bt.RpcSubstrate(
            self.endpoint,
            fallback_endpoints=settings.default_fallback_endpoints(label),
            archive_endpoints=settings.default_archive_endpoints(label),
        )
        self._client = bt.Client(network, substrate=self._substrate)
        self._hashes: OrderedDict[int, bytes] = OrderedDict()
        self._metagraphs: OrderedDict[tuple[int, bytes], graphs.Metagraph] = OrderedDict()
        self._clock: BlockClock | None = None
        self.in_reach = True
        """False from when the following of blocks broke off until it goes on; both have been said in the log."""
        self._follower: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, network: str, *, timeout: float = CONNECT_TIMEOUT) -> Chain:
        """Connect to `network`: finney, test, local, or a ws:// or wss:// URL.

        Raises UserError for an unknown network, ChainUnreachable if nobody answers within `timeout` seconds.
        """
        try:
            chain = cls(network)
        except ValueError:
            known = "finney, test, archive, local, or a ws:// or wss:// URL"
            raise UserError(f"--subtensor.network: there is no network '{network}'; give {known}") from None
        rpc.quiet_session_ends()
        try:
            await chain._read(chain._client.connect(), timeout)
        except BaseException:
            await chain.close()
            raise
        return chain

    async def close(self) -> None:
        """Stop following the chain and hang up. Idempotent."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
            self._follower = None
        closing = asyncio.ensure_future(self._client.close())
        # The SDK's session can lose its cancellation inside `wait_for` (before Python 3.12): then it is told again.
        while not (await asyncio.wait([closing], timeout=CLOSE_SECONDS))[0]:
            closing.cancel()
        if not closing.cancelled():
            closing.result()

    @property
    def network(self) -> str:
        """The network's name, or its URL if it has none."""
        return str(self._client.network)

    # Blocks and time ------------------------------------------------------------------------------------------

    async def head(self) -> Head:
        """The best chain's newest block."""
        number = await self._read(self._substrate.block_number())
        return Head(number, await self._hash(number))

    async def identity(self) -> bytes:
        """32 bytes that name this chain: the hash of block 1, since development chains share their genesis block."""
        return await self._hash(1)

    async def block_hash(self, number: int) -> bytes | None:
        """The 32-byte hash of block `number` on the best chain, None if the chain has not got that far."""
        if number in self._hashes:
            return self._hashes[number]
        try:
            text = await self._read(self._substrate.block_hash(number))
        except BlockMissing:
            return None
        return rpc.unhex(text)

    async def heads(self) -> AsyncIterator[Head]:
        """New blocks as they come, from the next one on; for ever. Skips what came while it was disconnected.

        Resubscribes, after about a second and then ever longer pauses up to a few blocks, when the subscription ends or
        falls silent. Says once that the chain is gone, and once that it is back.
        """
        failures = 0
        while True:
            try:
                async for head in self._subscribe():
                    failures = 0
                    if not self.in_reach:
                        self.in_reach = True
                        log.info("the chain at %s is back, at block %d", self.endpoint, head.number)
                    yield head
            except ChainUnreachable as error:
                log.debug("%s", error)
                if self.in_reach:
                    self.in_reach = False
                    log.warning("the chain at %s is out of reach; going on by its block time meanwhile", self.endpoint)
            failures += 1
            await asyncio.sleep(min(2.0 ** min(failures, 8), self._longest_pause) * random.uniform(0.5, 1.0))

    async def block_time(self) -> float:
        """Seconds per block: measured over the last blocks, or the chain's nominal value if that is implausible.

        Does not wait for a block.
        """
        nominal = await self._nominal_block_time()
        last = await self._read(self._substrate.block_number())
        first = max(last - BLOCK_TIME_SPAN, 1)
        if first >= last:
            return nominal
        stamps = [await self.query(bt.storage.Timestamp.Now, [], block) for block in (first, last)]
        measured = (int(stamps[1]) - int(stamps[0])) / 1000 / (last - first)
        # A chain that was stopped for a while has no steady pace to measure.
        return measured if nominal / 2 <= measured <= nominal * 2 else nominal

    async def clock(self) -> BlockClock:
        """The block clock that follows this chain, the same one at every call. `close` stops its following."""
        if self._clock is None:
            block_time = await self.block_time()
            number = await self._read(self._substrate.block_number())
            self._clock = BlockClock(number, block_time, self.block_hash)
            self._follower = asyncio.create_task(self._follow(self._clock), name="block-clock")
        return self._clock

    # Reads ----------------------------------------------------------------------------------------------------

    async def metagraph(self, netuid: int, block: int | None = None) -> graphs.Metagraph:
        """The subnet as of `block` (default: the newest), commitments included.

        Two to four requests; the last few are kept. Raises NoSuchSubnet, ChainUnreachable.
        """
        number = await self._read(self._substrate.block_number()) if block is None else block
        key = (netuid, await self._hash(number))
        kept = self._metagraphs.get(key)
        if kept is not None:
            return kept
        block_hash = "0x" + key[1].hex()
        api, method = bt.runtime_api.SubnetInfoRuntimeApi.get_metagraph
        graph = await self._read(self._substrate.runtime_call(api, method, [netuid], block_hash))
        if graph is None:
            raise NoSuchSubnet(netuid, self.network)
        keys = [[netuid, str(hotkey)] for hotkey in graph["hotkeys"]]
        item = bt.storage.Commitments.CommitmentOf
        commitments = await self._read(self._substrate.query_batch(item[0], item[1], keys, block_hash))
        built = graphs.build(netuid, graph, commitments)
        self._metagraphs[key] = built
        while len(self._metagraphs) > METAGRAPHS_KEPT:
            self._metagraphs.popitem(last=False)
        return built

    async def commitments(self, netuid: int) -> dict[str, bytes]:
        """What the subnet's registered hotkeys have published, by hotkey. As many requests as `metagraph`."""
        rows = (await self.metagraph(netuid)).rows
        return {row.hotkey: row.commitment for row in rows if row.commitment is not None}

    async def hyperparameters(self, netuid: int) -> Hyperparameters:
        """Raises NoSuchSubnet, ChainUnreachable."""
        raw = await self._read(self._client.subnets.subnet_hyperparameters(netuid))
        if raw is None:
            raise NoSuchSubnet(netuid, self.network)
        return Hyperparameters(
            tempo=int(raw["tempo"]),
            weights_rate_limit=int(raw["weights_rate_limit"]),
            weights_version=int(raw["weights_version"]),
            min_allowed_weights=int(raw["min_allowed_weights"]),
            commit_reveal=bool(raw["commit_reveal_weights_enabled"]),
            commit_reveal_period=int(raw["commit_reveal_period"]),
            max_validators=int(raw["max_validators"]),
            immunity_period=int(raw["immunity_period"]),
        )

    async def started(self, netuid: int) -> bool:
        """Whether the subnet's owner has started it: before that nothing is earned and nothing can be staked."""
        return await self.query(bt.storage.SubtensorModule.FirstEmissionBlockNumber, [netuid]) is not None

    async def balance(self, ss58: str) -> float:
        """Free TAO of an account, 0 for one that does not exist."""
        return float((await self._read(self._client.balances.get(ss58))).tao)

    async def query(self, item: Sequence[str], params: list[Any], block: int | None = None) -> Any:
        """One item of `bt.storage`, under its keys, as of `block` (default: the newest)."""
        block_hash = None if block is None else "0x" + (await self._hash(block)).hex()
        return await self._read(self._substrate.query(item[0], item[1], params, block_hash))

    # Writes ---------------------------------------------------------------------------------------------------

    async def commit(self, netuid: int, hotkey: Hotkey, data: bytes) -> None:
        """Publish up to 128 bytes under a registered hotkey, replacing what it published before.

        Raises ChainRefused (not registered, too often), ChainUnreachable, ValueError (too long).
        """
        call = bt.calls.Commitments.set_commitment(netuid=netuid, info=graphs.commitment_fields(data))
        await self.submit(call, hotkey.keypair, "hotkey")

    async def set_weights(
        self, netuid: int, hotkey: Hotkey, weights: dict[int, float], version_key: int = 0
    ) -> WeightsOutcome:
        """Set a validator's weights, relative and non-negative, by uid; plainly or encrypted as the subnet has it.

        Raises ChainUnreachable: it is then unknown whether they were set, and harmless to try again.
        """
        intent = bt.SetWeights(netuid=netuid, weights=weights, version_key=version_key)
        try:
            data = await self.execute(intent, hotkey.keypair)
        except ChainRefused as error:
            return await self.refused_weights(error, netuid, hotkey.ss58)
        return WeightsOutcome(True, committed="reveal_round" in data)

    async def refused_weights(self, error: ChainRefused, netuid: int, ss58: str) -> WeightsOutcome:
        """What a refusal of this hotkey's weights comes to: when to try again, if it was for coming too early."""
        if error.rate_limited:
            return WeightsOutcome(False, wait_blocks=await self._weights_due_in(netuid, ss58))
        return WeightsOutcome(False, refused=str(error))

    async def execute(self, intent: bt.Intent, wallet: Any) -> dict[str, Any]:
        """Sign and submit an SDK intent and wait until it is in a block; returns what it reports (e.g. a new netuid).

        wallet: anything the SDK takes for one. Raises ChainRefused, ChainUnreachable.
        """
        operation = self._client.execute(intent, wallet, wait_for_finalization=False, retries=2)
        return await self._write(intent.op, operation)

    async def submit(self, call: Any, wallet: Any, signer: str) -> dict[str, Any]:
        """As `execute`, for a raw call of `bt.calls`. signer: coldkey or hotkey, which of `wallet`'s keys signs."""
        operation = self._client.submit_call(call, wallet, signer=signer, wait_for_finalization=False)
        return await self._write(call.function, operation)

    async def compose(self, call: Any) -> Any:
        """A raw call encoded for nesting in another."""
        return await self._read(self._client.compose(call))

    # Internals ------------------------------------------------------------------------------------------------

    async def _write(self, what: str, operation: Awaitable[bt.ExtrinsicResult]) -> dict[str, Any]:
        timeout = READ_TIMEOUT + SUBMIT_BLOCKS * await self._nominal_block_time()
        return await rpc.write(self.endpoint, what, operation, timeout)

    async def _weights_due_in(self, netuid: int, ss58: str) -> int:
        limit = (await self.hyperparameters(netuid)).weights_rate_limit
        metagraph = await self.metagraph(netuid)
        row = metagraph.by_hotkey.get(ss58)
        return max(1, row.last_update + limit - metagraph.block) if row else 1

    @property
    def _longest_pause(self) -> float:
        blocks = PAUSE_BLOCKS * self._clock.block_time if self._clock is not None else _LONGEST_PAUSE
        return min(max(blocks, _SHORTEST_PAUSE), _LONGEST_PAUSE)

    async def _nominal_block_time(self) -> float:
        return float(await self._read(self._substrate.block_time()))

    async def _hash(self, number: int) -> bytes:
        found = await self.block_hash(number)
        if found is None:
            raise ChainUnreachable(f"{self.endpoint} does not have block {number}")
        return found

    async def _subscribe(self) -> AsyncIterator[Head]:
        """One subscription to new heads, until it fails. Raises ChainUnreachable."""
        silence = max(20.0, SILENCE * await self._nominal_block_time())
        headers = self._substrate.blocks()
        # What was heard before a gap may have been replaced meanwhile.
        self._hashes.clear()
        while True:
            raw = await self._read(rpc.next_header(headers), silence)
            head = Head(raw["number"], rpc.header_hash(raw))
            self._remember(head, rpc.unhex(raw["parentHash"]))
            yield head

    async def _follow(self, clock: BlockClock) -> None:
        async for head in self.heads():
            clock.observe(head.number)

    def _remember(self, head: Head, parent: bytes) -> None:
        if self._hashes.get(head.number - 1, parent) != parent:
            self._hashes.clear()
        self._hashes[head.number - 1], self._hashes[head.number] = parent, head.hash
        while len(self._hashes) > HASHES_KEPT:
            self._hashes.popitem(last=False)

    async def _read(self, operation: Awaitable[T], timeout: float = READ_TIMEOUT) -> T:
        return await rpc.read(self.endpoint, operation, timeout)
