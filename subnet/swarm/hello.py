"""Which run a peer is in: its canonical configuration, for anybody who asks.

The one thing served without a binding, so that a peer started with other settings can be told the first field in which
they differ instead of being refused without a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo

from subnet.swarm.traffic import Bucket
from subnet.swarm.wire import Stream, WireError, receive, refuse, send

PROTOCOL = "sn38/hello/1"
MAX_CONFIG_BYTES = 16 * 1024

_SECONDS = 3.0
_RATE, _BURST = 1.0, 5.0
_STREAMS = 32
_KNOWN_PEERS = 1024

log = logging.getLogger(__name__)


class HelloService:
    """Answers `PROTOCOL` streams with the protocol version and the canonical run configuration."""

    def __init__(self, protocol: int, run_config: bytes) -> None:
        if len(run_config) > MAX_CONFIG_BYTES:
            raise ValueError(f"a run configuration of {len(run_config)} bytes cannot be sent ({MAX_CONFIG_BYTES})")
        self.answer = [protocol, run_config]
        self._open = 0
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    async def serve(self, info: StreamInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one stream from beginning to end."""
        self._open += 1
        try:
            if self._open > _STREAMS or not self._bucket(info.peer_id.to_base58()).allows(_now()):
                await refuse(writer, "busy", _SECONDS)
            else:
                await send(writer, self.answer, _SECONDS)
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


async def ask(stream: Stream) -> tuple[int, bytes]:
    """The protocol version and the canonical run configuration (unchecked bytes) of whom `stream` leads to.

    Raises:
        WireError: no valid answer.
    """
    reader, writer = stream
    try:
        match await receive(reader, MAX_CONFIG_BYTES + 64, _SECONDS):
            case [int() as protocol, bytes() as run_config]:
                return protocol, run_config
            case _:
                raise WireError("malformed hello")
    finally:
        writer.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
