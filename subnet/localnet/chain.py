"""The chain: its head, its blocks, and the making of the next one.

No consensus among nodes: this process makes every block, and a block is final when made. Hashes are blake2b-256 of
the SCALE header as on Substrate; the state root is this chain's own (state.py).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from subnet.localnet import executive, shield
from subnet.localnet.dispatch import Rules
from subnet.localnet.extrinsic import Checker, Extrinsic, Invalid, parse
from subnet.localnet.ledger import Codec, Ledger
from subnet.localnet.mempool import Mempool, Pooled, Watcher
from subnet.localnet.metadata import SPEC_NAME
from subnet.localnet.metadata.scale import compact
from subnet.localnet.pallets import timelock
from subnet.localnet.runtime import ChainRuntime
from subnet.localnet.state import HISTORY, State
from subnet.localnet.store import Store, StoredBlock

logger = logging.getLogger(__name__)

MAX_BLOCK_EXTRINSICS = 500
MAX_BLOCK_BYTES = 5 * 1024 * 1024


def hex0x(data: bytes) -> str:
    return "0x" + data.hex()


@dataclass(frozen=True)
class Header:
    parent: bytes
    number: int
    state_root: bytes
    extrinsics_root: bytes

    def encode(self) -> bytes:
        """SCALE, with an empty digest."""
        return self.parent + compact(self.number) + self.state_root + self.extrinsics_root + b"\x00"

    @property
    def hash(self) -> bytes:
        return blake2b(self.encode(), digest_size=32).digest()

    def json(self) -> dict[str, Any]:
        return {
            "parentHash": hex0x(self.parent),
            "number": hex(self.number),
            "stateRoot": hex0x(self.state_root),
            "extrinsicsRoot": hex0x(self.extrinsics_root),
            "digest": {"logs": []},
        }

    @classmethod
    def of(cls, block: StoredBlock) -> Header:
        data = block.header
        middle = len(data) - 65
        return cls(data[:32], block.number, data[middle : middle + 32], data[middle + 32 : middle + 64])


def make_block(parent: bytes, number: int, state_root: bytes, body: list[bytes]) -> StoredBlock:
    root = blake2b(b"".join(body), digest_size=32).digest()
    header = Header(parent, number, state_root, root)
    return StoredBlock(number, header.hash, header.encode(), tuple(body))


class Chain:
    """A chain opened from a store that holds at least its genesis block."""

    def __init__(self, store: Store, runtime: ChainRuntime, rules: Rules) -> None:
        self.store = store
        self.runtime = runtime
        self.codec = Codec(runtime.codec)
        self.state = State()
        self.ledger = Ledger(self.codec, self.state)
        self._rules = rules
        self.head = store.load(self.state)
        if Header.of(self.head).state_root != self.state.root:
            raise store.damaged("the state does not match its root")
        genesis = store.hash_of(0)
        assert genesis is not None
        self.genesis = genesis
        self._recent: OrderedDict[int, bytes] = OrderedDict({0: genesis, self.head.number: self.head.hash})
        self.mempool = Mempool(lambda account: executive.nonce(self.ledger, account))
        self._checker = Checker(runtime.codec, runtime.v15, SPEC_NAME, genesis, self.hash_of)
        self._pulses: dict[int, str] = {}
        self.on_block: list[Callable[[StoredBlock, set[bytes]], None]] = []
        """Called after each block with the storage keys it changed."""

    def hash_of(self, number: int) -> bytes | None:
        """None for blocks to come and those pruned."""
        found = self._recent.get(number)
        return found if found is not None else self.store.hash_of(number)

    def block(self, block_hash: bytes | None = None) -> StoredBlock | None:
        """The block of this hash, or the head."""
        if block_hash is None or block_hash == self.head.hash:
            return self.head
        return self.store.block_by_hash(block_hash)

    def ledger_at(self, number: int) -> Ledger:
        """The state that block left; StateDiscarded when it is too old."""
        return self.ledger if number == self.head.number else Ledger(self.codec, self.state.at(number))

    def submit(self, raw: bytes, watcher: Watcher | None = None) -> Extrinsic:
        """Checks an extrinsic and queues it.

        Raises:
            Invalid: why it was refused; nothing has changed.
        """
        extrinsic = parse(raw, self.runtime.codec)
        following = self.head.number + 1
        self._checker.check(extrinsic, following)
        executive.check_payment(self.ledger, extrinsic)
        self.mempool.add(extrinsic, following, watcher)
        return extrinsic

    def hear(self, round_: int, signature: str) -> bool:
        """Takes a drand pulse, its signature in hex, into the next block; False for one that is not quicknet's."""
        if not timelock.opens(signature, round_):
            return False
        self._pulses[round_] = signature
        return True

    def produce(self, now_ms: int) -> StoredBlock:
        """Makes, stores and announces the next block. Should anything fail, the chain stays at its head.

        now_ms: Unix time in milliseconds; a clock that stands or goes back counts as one more millisecond.
        """
        number = self.head.number + 1
        now_ms = max(now_ms, self.ledger.get("Timestamp", "Now") + 1)
        making = executive.Block(self.ledger, self.state, self._rules, number)
        try:
            making.begin(self.head.hash, now_ms, self._pulses)
            body = [self._timestamp(now_ms)]
            included, refused = self._fill(making, body)
            making.finish()
            block = make_block(self.head.hash, number, self.state.root, body)
            changes = self.state.pending()
            self.store.append(block, changes, self.state.undo())
        except BaseException:
            self.state.abandon()
            raise
        self.state.seal(number)
        self.head = block
        self._pulses = {}
        self._recent[number] = block.hash
        while len(self._recent) > HISTORY:
            self._recent.popitem(last=False)
        self._tell(block, included, refused)
        for listener in self.on_block:
            listener(block, set(changes))
        return block

    def _fill(self, making: executive.Block, body: list[bytes]) -> tuple[list[Pooled], list[Pooled]]:
        included: list[Pooled] = []
        refused: list[Pooled] = []
        size = 0
        for pooled in self.mempool.ready():
            size += len(pooled.extrinsic.raw)
            if len(included) >= MAX_BLOCK_EXTRINSICS or size > MAX_BLOCK_BYTES:
                break
            if pooled.dies_at <= making.number:
                continue
            try:
                making.apply(pooled.extrinsic)
            except Invalid:
                refused.append(pooled)
                continue
            included.append(pooled)
            body.append(pooled.extrinsic.raw)
            self._unshield(making, pooled.extrinsic, body)
        return included, refused

    def _unshield(self, making: executive.Block, carrier: Extrinsic, body: list[bytes]) -> None:
        """Includes the extrinsic that a shielded carrier holds right behind it, if it holds one that may be."""
        sealed = shield.sealed_in(carrier.call)
        raw = shield.unseal(sealed) if sealed else None
        if raw is None:
            return
        try:
            inner = parse(raw, self.runtime.codec)
            self._checker.check(inner, making.number)
            making.apply(inner)
        except Invalid as refusal:
            logger.info("block %d: a shielded extrinsic was refused: %s", making.number, refusal)
            return
        body.append(inner.raw)

    def _tell(self, block: StoredBlock, included: list[Pooled], refused: list[Pooled]) -> None:
        for pooled in included:
            self.mempool.remove(pooled)
            pooled.tell({"inBlock": hex0x(block.hash)})
            pooled.tell({"finalized": hex0x(block.hash)})
        for pooled in refused:
            self.mempool.remove(pooled)
            pooled.tell("invalid")
        self.mempool.prune(block.number + 1)

    def _timestamp(self, now_ms: int) -> bytes:
        call = bytes(self.runtime.codec.compose_call("Timestamp", "set", {"now": now_ms}))
        return compact(len(call) + 1) + b"\x04" + call
