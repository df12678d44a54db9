"""The swarm's bulletin board: publish this peer's signed records, read everybody's of one kind and round.

The DHT process checks what it keeps; what it hands over is checked once more here, so a reader sees only records that
this very process has verified. This peer's own records are put up again while they matter, because replicas leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from typing import Any

from subnet.swarm import node
from subnet.swarm.control import DhtControl
from subnet.swarm.errors import SwarmError
from subnet.swarm.gate import RecordGate
from subnet.swarm.identity import Signer
from subnet.swarm.records import KINDS, MAX_LEASE_S, BadRecord, Record, dht_subkey, record_key, seal, sign_record
from subnet.waiting import timeout

log = logging.getLogger(__name__)

CALL_SECONDS = 3.0
"""Longest a look-up or a publication takes."""
_MARGIN_SECONDS = 1.0
_CONFIGURE_SECONDS = 10.0
_HOTKEYS_PER_CALL = 50
_ROUNDS_BACK, _ROUNDS_AHEAD = 3, 2
_REJECTED = 4096


class Bulletin:
    """Records through the DHT. `rejected` counts refused ones by (hotkey, reason)."""

    def __init__(self, control: DhtControl, gate: RecordGate, signer: Signer) -> None:
        self.control = control
        self.gate = gate
        self.signer = signer
        self.run_id = gate.run_id
        self.rejected: Counter[tuple[str, str]] = Counter()
        self._own: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._news = asyncio.Event()
        self._told: set[tuple[str, str]] = set()

    async def enter_round(self, round_index: int, registered: frozenset[str]) -> None:
        """From now on accept records of these hotkeys only, and of rounds near this one.

        Raises:
            SwarmError: the DHT process has ended.
        """
        rounds = range(max(0, round_index - _ROUNDS_BACK), round_index + _ROUNDS_AHEAD + 1)
        self.gate.registered, self.gate.rounds = registered, rounds
        self._told.clear()
        current = {record_key(self.run_id, kind, r) for kind in KINDS for r in (0, *rounds)}
        self._own = {slot: value for slot, value in self._own.items() if slot[0] in current}
        hotkeys = sorted(registered)
        last = max(0, len(hotkeys) - 1) // _HOTKEYS_PER_CALL
        for i in range(last + 1):
            piece = hotkeys[i * _HOTKEYS_PER_CALL : (i + 1) * _HOTKEYS_PER_CALL]
            await self.call(
                node.configure, piece, i == 0, i == last, (rounds.start, rounds.stop), seconds=_CONFIGURE_SECONDS
            )

    async def publish(self, kind: str, round_index: int, body: dict[str, Any], subkey: str, expires_s: float) -> bool:
        """Sign a record and have it kept for `expires_s` seconds; False if not even this peer's own DHT node took it.

        Raises:
            BadRecord: the body is malformed or too large for a record.
            SwarmError: the DHT process has ended.
        """
        record = sign_record(self.signer, kind, self.run_id, round_index, body, subkey)
        expires = time.time() + min(expires_s, MAX_LEASE_S)
        key, whose = record_key(self.run_id, kind, round_index), dht_subkey(record.hotkey, subkey)
        value = seal(self.signer, record, expires)
        self._own[key, whose] = (value, expires)
        self._news.set()
        self._news = asyncio.Event()
        return await self._store(key, whose, value, expires)

    async def own(self, kind: str, round_index: int, subkey: str, seconds: float) -> bytes | None:
        """The sealed record that this peer published, waited for up to `seconds`; None if there is none by then."""
        slot = record_key(self.run_id, kind, round_index), dht_subkey(self.signer.ss58, subkey)
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                while slot not in self._own:
                    await self._news.wait()
        return self._own[slot][0] if slot in self._own else None

    def admit(self, value: bytes, hotkey: str, kind: str, round_index: int, subkey: str) -> Record:
        """The verified record in a sealed one that its author itself handed over. Raises BadRecord."""
        record, _ = self.gate.admit(value)
        if (record.hotkey, record.kind, record.round, record.subkey) != (hotkey, kind, round_index, subkey):
            raise BadRecord("another record than asked for")
        return record

    async def find(self, kind: str, round_index: int) -> list[tuple[Record, float]]:
        """Verified records with the Unix time until which each counts; one per author and subkey, in their order.

        What could be found in `CALL_SECONDS`: nothing, if the DHT process is that busy.

        Raises:
            SwarmError: the DHT process has ended.
        """
        key = record_key(self.run_id, kind, round_index)
        answer = await self.call(node.lookup, key, CALL_SECONDS, seconds=CALL_SECONDS + _MARGIN_SECONDS)
        values, refused = answer or ([], {})
        self._count(refused)
        found: dict[tuple[str, int], tuple[Record, float]] = {}
        for value in values:
            try:
                record, until = self.gate.admit(value)
            except BadRecord as error:
                log.debug("the DHT process handed over a record that no longer counts: %s", error)
                continue
            if (record.kind, record.round) == (kind, round_index):
                found[record.hotkey, int(record.subkey or 0)] = (record, until)
        return [found[order] for order in sorted(found)]

    async def publish_again(self) -> None:
        """Put up this peer's own records anew that have not run out, for replicas that are new. Raises SwarmError."""
        self._own = {slot: value for slot, value in self._own.items() if value[1] > time.time()}
        for (key, whose), (value, expires) in list(self._own.items()):
            await self._store(key, whose, value, expires)

    async def _store(self, key: str, whose: str, value: bytes, expires: float) -> bool:
        limit = CALL_SECONDS + _MARGIN_SECONDS
        return bool(await self.call(node.store, key, whose, value, expires, CALL_SECONDS, seconds=limit))

    async def call(self, function: Any, *args: Any, seconds: float) -> Any:
        """What a function of `subnet.swarm.node` returns; None when a living DHT process did not answer in time.

        Raises:
            SwarmError: the DHT process has ended.
        """
        try:
            return await self.control.call(function, *args, seconds=seconds)
        except SwarmError as error:
            if not self.control.alive:
                raise
            log.warning("%s", error)
            return None

    def _count(self, refused: dict[tuple[str, str], int]) -> None:
        """Add refusals of the DHT process; say each sender and reason once a round."""
        for (hotkey, reason), number in refused.items():
            if len(self.rejected) < _REJECTED:
                self.rejected[hotkey, reason] += number
            if (hotkey, reason) not in self._told:
                self._told.add((hotkey, reason))
                log.info("refused a record of %s: %s", hotkey, reason)
