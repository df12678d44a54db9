"""Serving leaves by hash to registered peers, and refusing everybody else before they cost anything.

Every request shows a binding; it counts only when it is signed by a registered hotkey and names the very peer id that
libp2p authenticated on the stream. Streams, requests and bytes are bounded per peer and in total, and for peer ids that
nobody registered vouches for more tightly, so that a crowd of them does not keep registered peers out. A stream between
two requests, or whose answer this peer does not know yet, takes no place from those that are served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo

from subnet.diloco.merkle import HASH_BYTES, Tree
from subnet.swarm.blobs import MAX_LEAVES, MAX_RANGE, MAX_RANGE_BYTES, SMALL_LEAF, WORD_SECONDS
from subnet.swarm.identity import BadBinding, Binding, Verify, open_binding
from subnet.swarm.store import BlobStore, Entry
from subnet.swarm.traffic import Bucket, Traffic, Upload
from subnet.swarm.wire import CHUNK, WireError, drain, flush, receive, refuse, send

log = logging.getLogger(__name__)

_MAX_REQUEST_BYTES = 1024
_KNOWN_PEERS = 4096
_KNOWN_BINDINGS = 4096


@dataclass(frozen=True)
class Limits:
    """What others may ask of this peer. Time is in seconds, sizes in bytes."""

    streams: int = 128
    """Streams open at once, from everybody."""
    streams_per_peer: int = 12
    strangers: int = 32
    """Of `streams`, those open at once for peer ids that have not shown a binding yet and are not known either."""
    streams_per_stranger: int = 4
    request_rate: float = 50.0
    """Requests per second and peer, after a burst of `request_burst`."""
    request_burst: float = 400.0
    byte_rate: float = 32e6
    """Bytes per second and peer, after a burst of `byte_burst`."""
    byte_burst: float = 256e6
    resting: int = 512
    """Streams that wait, for a word of this peer or for their next request."""
    resting_per_peer: int = 8
    request_seconds: float = 3.0
    """A stream that has not said what it wants (next) by then is closed."""
    word_seconds: float = 0.75 * WORD_SECONDS
    """A word that is not there by then is to be asked for again."""
    stall_seconds: float = 10.0
    """A reader that takes nothing for this long is dropped."""


class _Refusal(Exception):
    """Why a request is not served; the message goes to the caller."""


@dataclass
class _Quota:
    """One caller's share, by authenticated peer id."""

    requests: Bucket
    sent: Bucket
    open: int = 0
    strange: int = 0
    """Of the open streams, those of a stranger."""
    resting: int = 0


@dataclass
class _Slot:
    """One stream's place, unless it rests; a stranger's until it has shown a binding that counts."""

    quota: _Quota
    stranger: bool
    taken: bool = False


Word = Callable[[str, int, str, float], Awaitable[bytes | None]]
"""`await word(kind, round, subkey, seconds)`: its own sealed record, once it is published; None if it is not."""


async def _speechless(kind: str, round_index: int, subkey: str, seconds: float) -> bytes | None:
    return None


class BlobService:
    """Answers `blobs.PROTOCOL` streams from `store`. `block()` is the current chain block, `registered` who may ask,
    `word` gives this peer's own records.

    `known(peer_id)` says whether a registered hotkey has vouched for it elsewhere, in its record or on chain; `refused`
    counts refusals by (peer id, reason).
    """

    def __init__(
        self,
        store: BlobStore,
        run_id: bytes,
        verify: Verify,
        block: Callable[[], float],
        traffic: Traffic,
        known: Callable[[str], bool] = lambda peer_id: False,
        word: Word = _speechless,
        limits: Limits | None = None,
    ) -> None:
        self.store = store
        self.run_id = run_id
        self.verify = verify
        self.block = block
        self.traffic = traffic
        self.limits = limits or Limits()
        self.known = known
        self.word = word
        self.registered: Set[str] = frozenset()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.upload = Upload(self._now)
        self._open = 0
        self._strange = 0
        self._resting = 0
        self._shown: OrderedDict[str, str] = OrderedDict()
        self._quotas: OrderedDict[str, _Quota] = OrderedDict()
        self._bindings: OrderedDict[bytes, Binding] = OrderedDict()
        self._newest: dict[str, Binding] = {}

    async def serve(self, info: StreamInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one stream from beginning to end."""
        peer_id = info.peer_id.to_base58()
        try:
            async with self._slot(peer_id) as slot:
                request = await receive(reader, _MAX_REQUEST_BYTES, self.limits.request_seconds)
                while True:
                    await self._answer(writer, slot, request, peer_id)
                    with self._rest(slot):
                        request = await receive(reader, _MAX_REQUEST_BYTES, self.limits.request_seconds)
                    self._take_place(slot)
        except _Refusal as refusal:
            self.refused[peer_id, str(refusal)] += 1
            if len(self.refused) > _KNOWN_PEERS:
                self.refused.clear()
            try:
                await refuse(writer, str(refusal), self.limits.request_seconds)
            except WireError as error:
                log.debug("%s %s", peer_id, error)
        except WireError as error:
            log.debug("%s %s", peer_id, error)
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, slot: _Slot, request: Any, peer_id: str) -> None:
        match request:
            case [("leaves" | "hashes") as op, bytes() as root, int() as start, int() as stop, bytes() as shown]:
                if not (0 <= start < stop <= MAX_LEAVES and (op == "hashes" or stop - start <= MAX_RANGE)):
                    raise _Refusal("range out of bounds")
                hotkey = self._authorised(shown, peer_id)
                self._welcome(slot)
                entry = self._find(root)
                if op == "leaves":
                    await self._send_leaves(writer, slot.quota, hotkey, entry, start, stop)
                else:
                    await self._send_hashes(writer, slot.quota, hotkey, entry)
            case ["word", str() as kind, int() as round_index, str() as subkey, bytes() as shown]:
                self._authorised(shown, peer_id)
                self._welcome(slot)
                with self._rest(slot):
                    value = await self.word(kind, round_index, subkey, self.limits.word_seconds)
                if value is None:
                    raise _Refusal("not yet")
                self._take_place(slot)
                await send(writer, value, self.limits.stall_seconds)
            case _:
                raise _Refusal("malformed request")

    @asynccontextmanager
    async def _slot(self, peer_id: str) -> AsyncIterator[_Slot]:
        stranger = self._shown.get(peer_id) not in self.registered and not self.known(peer_id)
        slot = _Slot(self._quota(peer_id), stranger)
        self._take_place(slot)
        try:
            yield slot
        finally:
            self._leave_place(slot)

    def _take_place(self, slot: _Slot) -> None:
        """Count a request, and its stream among those that are served. Raises _Refusal."""
        quota, limits = slot.quota, self.limits
        if self._open >= limits.streams or quota.open >= limits.streams_per_peer:
            raise _Refusal("busy")
        if slot.stranger and (self._strange >= limits.strangers or quota.strange >= limits.streams_per_stranger):
            raise _Refusal("busy")
        if not quota.requests.allows(self._now()):
            raise _Refusal("busy: too many requests")
        slot.taken = True
        self._open += 1
        quota.open += 1
        self._strange += slot.stranger
        quota.strange += slot.stranger

    def _leave_place(self, slot: _Slot) -> None:
        if slot.taken:
            self._welcome(slot)
            slot.taken = False
            self._open -= 1
            slot.quota.open -= 1

    @contextmanager
    def _rest(self, slot: _Slot) -> Iterator[None]:
        """Meanwhile the stream takes no place. Raises _Refusal when too many rest."""
        if self._resting >= self.limits.resting or slot.quota.resting >= self.limits.resting_per_peer:
            raise _Refusal("busy: too many wait")
        self._leave_place(slot)
        self._resting += 1
        slot.quota.resting += 1
        try:
            yield
        finally:
            self._resting -= 1
            slot.quota.resting -= 1

    def _welcome(self, slot: _Slot) -> None:
        """This stream does not count among the strangers' any longer."""
        self._strange -= slot.stranger
        slot.quota.strange -= slot.stranger
        slot.stranger = False

    def _quota(self, peer_id: str) -> _Quota:
        quota = self._quotas.pop(peer_id, None)
        if quota is None:
            now, limits = self._now(), self.limits
            quota = _Quota(
                Bucket.full(limits.request_rate, limits.request_burst, now),
                Bucket.full(limits.byte_rate, limits.byte_burst, now),
            )
        self._quotas[peer_id] = quota
        if len(self._quotas) > _KNOWN_PEERS:
            self._quotas.popitem(last=False)
        return quota

    def _authorised(self, shown: bytes, peer_id: str) -> str:
        """The registered hotkey that speaks through this peer id. Raises _Refusal."""
        binding = self._bindings.get(shown)
        if binding is None:
            try:
                binding = open_binding(shown, run_id=self.run_id, verify=self.verify)
            except BadBinding as error:
                raise _Refusal(f"unauthorised: {error}") from error
            self._bindings[shown] = binding
            if len(self._bindings) > _KNOWN_BINDINGS:
                self._bindings.popitem(last=False)
        if binding.peer_id != peer_id:
            raise _Refusal("unauthorised: the binding names another peer id")
        if binding.hotkey not in self.registered:
            raise _Refusal("unauthorised: the hotkey is not registered")
        newest = self._newest.get(binding.hotkey, binding)
        if newest.peer_id != peer_id and newest.issued_block > binding.issued_block:
            raise _Refusal("unauthorised: the hotkey has moved to another peer id")
        self._newest[binding.hotkey] = max(newest, binding, key=lambda b: b.issued_block)
        self._shown.pop(peer_id, None)
        self._shown[peer_id] = binding.hotkey
        if len(self._shown) > _KNOWN_PEERS:
            self._shown.popitem(last=False)
        return binding.hotkey

    def _find(self, root: bytes) -> Entry:
        entry = self.store.entry(root)
        if entry is None:
            raise _Refusal("unknown root")
        if self.block() < entry.not_before_block:
            raise _Refusal("not yet")
        return entry

    async def _send_leaves(
        self, writer: asyncio.StreamWriter, quota: _Quota, hotkey: str, entry: Entry, start: int, stop: int
    ) -> None:
        tree = await _tree_of(entry)
        hashes = tree.levels[0]
        if stop > len(hashes):
            raise _Refusal("range out of bounds")
        leaves: list[bytes] = []
        size = 0
        for index in range(start, stop):
            leaves.append(entry.leaf(index))
            size += len(leaves[-1])
            if size > MAX_RANGE_BYTES and len(leaves) > 1:
                raise _Refusal("range out of bounds")
        proof = tree.range_proof(start, stop)
        shown = list(hashes[start:stop]) if size >= SMALL_LEAF * len(leaves) else []
        with self.upload.sending() as sent:
            await send(writer, [[len(x) for x in leaves], shown, proof], self.limits.stall_seconds)
            for leaf in leaves:
                await self._send_bytes(writer, quota, hotkey, leaf)
                sent(len(leaf))
            await flush(writer, self.limits.stall_seconds)

    async def _send_hashes(self, writer: asyncio.StreamWriter, quota: _Quota, hotkey: str, entry: Entry) -> None:
        hashes = (await _tree_of(entry)).levels[0]
        await send(writer, len(hashes), self.limits.stall_seconds)
        run = CHUNK // HASH_BYTES
        for at in range(0, len(hashes), run):
            await self._send_bytes(writer, quota, hotkey, b"".join(hashes[at : at + run]))
        await flush(writer, self.limits.stall_seconds)

    async def _send_bytes(self, writer: asyncio.StreamWriter, quota: _Quota, hotkey: str, data: bytes) -> None:
        view = memoryview(data)
        for at in range(0, len(view), CHUNK):
            chunk = view[at : at + CHUNK]
            wait = quota.sent.take(len(chunk), self._now())
            if wait > 0.0:
                await asyncio.sleep(wait)
            writer.write(chunk)
            await drain(writer, self.limits.stall_seconds)
            self.traffic.up[hotkey] += len(chunk)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def _tree_of(entry: Entry) -> Tree:
    try:
        return await entry.tree()
    except ValueError as error:
        log.error("a tree of this peer cannot be offered: %s", error)
        raise _Refusal("unknown root") from error
