"""Streams between peers: small length-prefixed frames, a bounded read, and dialling by peer id and addresses.

Raw libp2p streams rather than hivemind's protobuf ones: those read a frame of any length a stranger announces, and
cost twice the processor time per byte.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from typing import Any

import msgpack
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError
from hivemind.utils.multiaddr import Multiaddr

from subnet.swarm import multiaddr
from subnet.waiting import timeout

CHUNK = 256 * 1024
"""Most bytes written or read in one go."""
_FRAME = struct.Struct(">BI")
_OK, _REFUSED = 1, 2
_MAX_REASON = 200

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WireError(Exception):
    """The peer cannot be reached, went silent, or does not speak the protocol; the message is the reason."""


class Refused(WireError):
    """The peer answered, and the answer is no; the message is its reason, cut to 200 printable characters."""


async def send(writer: asyncio.StreamWriter, message: Any, seconds: float) -> None:
    """Write one frame holding `message` (msgpack). Raises WireError."""
    data = msgpack.packb(message, use_bin_type=True)
    writer.write(_FRAME.pack(_OK, len(data)) + data)
    await drain(writer, seconds)


async def refuse(writer: asyncio.StreamWriter, reason: str, seconds: float) -> None:
    """Write one frame that says no. Raises WireError."""
    data = reason.encode()[:_MAX_REASON]
    writer.write(_FRAME.pack(_REFUSED, len(data)) + data)
    await drain(writer, seconds)


async def receive(reader: asyncio.StreamReader, limit: int, seconds: float) -> Any:
    """Read one frame of at most `limit` bytes and unpack it.

    Raises:
        Refused: the peer said no.
        WireError: nothing valid came within `seconds`.
    """
    kind, size = _FRAME.unpack(await read(reader, _FRAME.size, seconds))
    if kind not in (_OK, _REFUSED) or size > (limit if kind == _OK else _MAX_REASON):
        raise WireError("malformed frame")
    data = await read(reader, size, seconds)
    if kind == _REFUSED:
        raise Refused("".join(c for c in data.decode(errors="replace") if c.isprintable()))
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError("malformed frame") from error


async def read(reader: asyncio.StreamReader, size: int, seconds: float) -> bytes:
    """Exactly `size` bytes; every chunk of at most 256 KiB must arrive within `seconds`. Raises WireError."""
    pieces: list[bytes] = []
    try:
        while size > 0:
            async with timeout(seconds):
                piece = await reader.readexactly(min(size, CHUNK))
            pieces.append(piece)
            size -= len(piece)
    except asyncio.TimeoutError as error:
        raise WireError("went silent") from error
    except (asyncio.IncompleteReadError, OSError) as error:
        raise WireError("closed the stream") from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def drain(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Wait until the peer has taken what was written. Raises WireError after `seconds`."""
    try:
        async with timeout(seconds):
            await writer.drain()
    except asyncio.TimeoutError as error:
        raise WireError("does not read") from error
    except OSError as error:
        raise WireError("closed the stream") from error


async def flush(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Wait until all that was written has left this process, so that closing leaves nothing. Raises WireError."""
    writer.transport.set_write_buffer_limits(high=0)
    try:
        await drain(writer, seconds)
    finally:
        writer.transport.set_write_buffer_limits()


class Dialer:
    """Opens streams to peers: by their current addresses first, and through the DHT's own routing if that fails."""

    def __init__(self, p2p: P2P) -> None:
        self.p2p = p2p
        self._reached: dict[str, frozenset[bytes]] = {}
        self._closing: set[asyncio.Task[Any]] = set()

    async def open(self, peer_id: str, maddrs: Iterable[bytes], protocol: str, seconds: float) -> Stream:
        """A stream to `peer_id`, authenticated by libp2p. Raises WireError."""
        limit = asyncio.get_running_loop().time() + seconds
        addresses = frozenset(maddrs)
        before = self._reached.get(peer_id)
        if before and addresses and not before & addresses:
            # It has started again elsewhere; libp2p may still hold a connection to nobody for most of a minute.
            await self._bounded(self.p2p._client.disconnect(PeerID.from_base58(peer_id)), seconds, _ignore)
        if addresses and before != addresses:
            # New addresses are tried before libp2p waits for old ones to time out.
            await self.connect(peer_id, addresses, seconds)
        try:
            _, reader, writer = await self._bounded(
                self.p2p.call_binary_stream_handler(PeerID.from_base58(peer_id), protocol),
                limit - asyncio.get_running_loop().time(),
                lambda stream: stream[2].close(),
            )
        except WireError:
            self._reached.pop(peer_id, None)
            raise
        self._reached[peer_id] = addresses
        return reader, writer

    async def connect(self, peer_id: str, maddrs: Iterable[bytes], seconds: float) -> None:
        """Have libp2p connect to `peer_id` at `maddrs`. Raises WireError."""
        plain = [Multiaddr(multiaddr.without_peer(m)[0]) for m in maddrs]
        await self._bounded(self.p2p._client.connect(PeerID.from_base58(peer_id), plain), seconds, _ignore)

    async def connected(self, seconds: float) -> frozenset[str]:
        """The peer ids libp2p is connected to right now. Raises WireError if it does not say in time."""
        infos = await self._bounded(self.p2p.list_peers(), seconds, _ignore)
        return frozenset(info.peer_id.to_base58() for info in infos)

    async def _bounded(self, work: Any, seconds: float, discard: Callable[[Any], None]) -> Any:
        # Cancelling hivemind's calls would leave its sockets open: a late one is let finish, then discarded.
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=max(0.0, seconds))
        except asyncio.CancelledError:
            self._abandon(task, discard)
            raise
        if not done:
            self._abandon(task, discard)
            raise WireError("cannot be reached in time")
        try:
            return task.result()
        except (P2PDaemonError, OSError, asyncio.IncompleteReadError) as error:
            raise WireError("cannot be reached") from error

    def _abandon(self, task: asyncio.Task[Any], discard: Callable[[Any], None]) -> None:
        def late(finished: asyncio.Task[Any]) -> None:
            self._closing.discard(finished)
            if not finished.cancelled() and finished.exception() is None:
                discard(finished.result())

        self._closing.add(task)
        task.add_done_callback(late)


def _ignore(_: Any) -> None:
    """A late answer that holds nothing."""
