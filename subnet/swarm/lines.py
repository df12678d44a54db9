"""Open streams to peers, kept for a moment after an answer in case there is another request for the same peer.

A new stream costs libp2p round trips to agree on the protocol, and this machine a socket. Not a guarantee: the other
end hangs up after a while as well, and then a request fails like any other.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from subnet.swarm.wire import Stream

KEPT_SECONDS = 1.5
"""How long a stream is kept; well below the time after which the other end closes it."""
MAX_KEPT = 64
"""Streams kept, to all peers together."""
_PER_PEER = 2

Dial = Callable[[str, str, float], Awaitable[Stream]]
"""`await dial(hotkey, protocol, seconds)`: a stream to whoever speaks for that hotkey. Raises WireError."""


class Lines:
    """Streams of one protocol, dialled when there is none that rests."""

    def __init__(self, dial: Dial, protocol: str) -> None:
        self._dial = dial
        self._protocol = protocol
        self._resting: defaultdict[str, deque[tuple[Stream, float]]] = defaultdict(deque)

    @asynccontextmanager
    async def to(self, hotkey: str, seconds: float) -> AsyncIterator[Stream]:
        """A stream for as many requests as there are answers read to their end; closed if the block raises.

        Raises:
            WireError: the peer cannot be reached within `seconds`.
        """
        self.tidy()
        stream = self._taken(hotkey) or await self._dial(hotkey, self._protocol, seconds)
        try:
            yield stream
        except BaseException:
            stream[1].close()
            raise
        self._keep(hotkey, stream)

    def tidy(self) -> None:
        """Close what has rested too long."""
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        for hotkey, streams in list(self._resting.items()):
            while streams and (streams[0][1] < oldest or streams[0][0][0].at_eof()):
                streams.popleft()[0][1].close()
            if not streams:
                del self._resting[hotkey]

    def close(self) -> None:
        """Close all that rest."""
        for streams in self._resting.values():
            for (_, writer), _ in streams:
                writer.close()
        self._resting.clear()

    def _taken(self, hotkey: str) -> Stream | None:
        streams = self._resting.get(hotkey)
        return streams.pop()[0] if streams else None

    def _keep(self, hotkey: str, stream: Stream) -> None:
        full = sum(map(len, self._resting.values())) >= MAX_KEPT
        if full or len(self._resting.get(hotkey, ())) >= _PER_PEER or stream[0].at_eof():
            stream[1].close()
        else:
            self._resting[hotkey].append((stream, asyncio.get_running_loop().time()))
