"""Which run a peer is in and for whom it speaks: its canonical configuration and its binding, for anybody who asks.

The one thing served without asking for a binding, so that a peer started with other settings can be told the first
field in which they differ, and a hotkey that runs already elsewhere can be told where.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import NamedTuple

from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo

from subnet.swarm.traffic import Bucket
from subnet.swarm.wire import Stream, WireError, receive, refuse, send

PROTOCOL = "sn38/hello/1"
MAX_CONFIG_BYTES = 16 * 1024
_ROOM = 512
"""Bytes of a greeting beside the configuration, its binding among them."""

_SECONDS = 3.0
_RATE, _BURST = 1.0, 5.0
_STREAMS = 32
_KNOWN_PEERS = 1024

log = logging.getLogger(__name__)


class Greeting(NamedTuple):
    """What a peer says of itself: protocol version, canonical run configuration and binding (unchecked bytes)."""

    protocol: int
    run_config: bytes
    binding: bytes


class HelloService:
    """Answers `PROTOCOL` streams with this peer's greeting."""

    def __init__(self, greeting: Greeting) -> None:
        size = len(greeting.run_config)
        if size > MAX_CONFIG_BYTES:
            raise ValueError(f"a run configuration of {size} bytes cannot be sent ({MAX_CONFIG_BYTES})")
        self.greeting = greeting
        self._open = 0
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    async def serve(self, info: StreamInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one stream from beginning to end."""
        self._open += 1
        try:
            if self._open > _STREAMS or not self._bucket(info.peer_id.to_base58()).allows(_now()):
                await refuse(writer, "busy", _SECONDS)
            else:
                await send(writer, list(self.greeting), _SECONDS)
        except WireError as error:
            log.debug("hello to %s: %s", info.peer_id, error)
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    def _bucket(self, peer_id: str) -> Bucket:
        bucket = self._buckets.pop(peer_id, None) or Bucket.full(_RATE, _BURST, _now())
        self._buckets[peer_id] = bucket
        if len(self._buckets) > _KNOWN_PEERS:
            self._buckets.popitem(last=False)
        return bucket


async def ask(stream: Stream) -> Greeting:
    """The greeting of whom `stream` leads to.

    Raises:
        WireError: no valid answer.
    """
    reader, writer = stream
    try:
        match await receive(reader, MAX_CONFIG_BYTES + _ROOM, _SECONDS):
            case [int() as protocol, bytes() as run_config, bytes() as binding]:
                return Greeting(protocol, run_config, binding)
            case _:
                raise WireError("malformed hello")
    finally:
        writer.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
