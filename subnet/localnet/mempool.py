"""Extrinsics waiting for a block: by account in nonce order, by tip and arrival between accounts.

Not validity itself (extrinsic.py, executive.py). Bounded in total and per account. Statuses and error codes are
those of Substrate's transaction pool, which the SDK's submit-and-watch follows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from subnet.localnet.extrinsic import FUTURE, MAX_AHEAD, STALE, Extrinsic, Invalid

MAX_POOLED = 8192
NEVER = 1 << 63

Watcher = Callable[[Any], None]
"""Told each status: "ready", "future", {"inBlock": hash}, {"finalized": hash}, {"usurped": hash}, "invalid"."""


@dataclass
class Pooled:
    extrinsic: Extrinsic
    arrival: int
    dies_at: int
    """The first block number in which the era no longer holds."""
    watchers: list[Watcher] = field(default_factory=list)

    def tell(self, status: Any) -> None:
        for watcher in self.watchers:
            watcher(status)


class Mempool:
    def __init__(self, next_nonce: Callable[[str], int]) -> None:
        """`next_nonce`: an account's next nonce at the head."""
        self._next_nonce = next_nonce
        self._accounts: dict[str, dict[int, Pooled]] = {}
        self._by_hash: dict[bytes, Pooled] = {}
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._by_hash)

    def __iter__(self) -> Iterator[Extrinsic]:
        return iter([pooled.extrinsic for pooled in self._by_hash.values()])

    def add(self, extrinsic: Extrinsic, number: int, watcher: Watcher | None = None) -> None:
        """Takes a checked extrinsic for block `number` or later.

        Raises:
            Invalid: stale or too far ahead (1010), already there (1013), tip too low to replace another (1014),
                full (1016).
        """
        if extrinsic.hash in self._by_hash:
            raise Invalid("Transaction is already imported", 1013, "Transaction Already Imported")
        following = self._next_nonce(extrinsic.signer)
        if extrinsic.nonce < following:
            raise Invalid(STALE)
        if extrinsic.nonce >= following + MAX_AHEAD:
            raise Invalid(FUTURE)
        waiting = self._accounts.get(extrinsic.signer, {})
        rival = waiting.get(extrinsic.nonce)
        if rival is not None and extrinsic.tip <= rival.extrinsic.tip:
            detail = f"Priority is too low: ({rival.extrinsic.tip} vs {extrinsic.tip})"
            raise Invalid(detail, 1014, detail)
        if rival is None and len(self._by_hash) >= MAX_POOLED:
            raise Invalid("The pool is full", 1016, "Immediately Dropped")
        if rival is not None:
            self._forget(rival)
            rival.tell({"usurped": "0x" + extrinsic.hash.hex()})
        dies_at = NEVER if extrinsic.era is None else extrinsic.era.birth(number) + extrinsic.era.period
        pooled = Pooled(extrinsic, next(self._arrivals), dies_at, [watcher] if watcher else [])
        self._accounts.setdefault(extrinsic.signer, {})[extrinsic.nonce] = pooled
        self._by_hash[extrinsic.hash] = pooled
        pooled.tell("ready" if extrinsic.nonce < self.next_index(extrinsic.signer) else "future")

    def next_index(self, account: str) -> int:
        """The nonce to sign with next, counting what already waits without a gap."""
        nonce = self._next_nonce(account)
        waiting = self._accounts.get(account, {})
        while nonce in waiting:
            nonce += 1
        return nonce

    def unwatch(self, watcher: Watcher) -> None:
        for pooled in self._by_hash.values():
            if watcher in pooled.watchers:
                pooled.watchers.remove(watcher)

    def ready(self) -> Iterator[Pooled]:
        """What the next block may include, best first; an account's next one only once its nonce was used."""
        heap: list[tuple[int, int, Pooled]] = []

        def offer(account: str) -> None:
            pooled = self._accounts.get(account, {}).get(self._next_nonce(account))
            if pooled is not None:
                heapq.heappush(heap, (-pooled.extrinsic.tip, pooled.arrival, pooled))

        for account in self._accounts:
            offer(account)
        while heap:
            pooled = heapq.heappop(heap)[2]
            yield pooled
            if self._next_nonce(pooled.extrinsic.signer) > pooled.extrinsic.nonce:
                offer(pooled.extrinsic.signer)

    def remove(self, pooled: Pooled) -> None:
        """Takes out one that a block included, or that turned out invalid."""
        if self._by_hash.get(pooled.extrinsic.hash) is pooled:
            self._forget(pooled)

    def prune(self, number: int) -> None:
        """Drops what can no longer enter block `number`: outlived by its era or overtaken by its account's nonce."""
        for pooled in list(self._by_hash.values()):
            if pooled.dies_at <= number or pooled.extrinsic.nonce < self._next_nonce(pooled.extrinsic.signer):
                self._forget(pooled)
                pooled.tell("invalid")

    def _forget(self, pooled: Pooled) -> None:
        del self._by_hash[pooled.extrinsic.hash]
        waiting = self._accounts[pooled.extrinsic.signer]
        del waiting[pooled.extrinsic.nonce]
        if not waiting:
            del self._accounts[pooled.extrinsic.signer]
