"""Pulling leaves by hash: the client side, which trusts no source and counts every byte before it reads it.

A stream carries requests [op, root, start, stop, binding], answered in their order. The answer to "leaves" is [sizes,
hashes, proof], checked against the root before anything else is read, then the leaves' bytes. Leaves that are small
beside a hash come without hashes: they are checked together, when all have come. The answer to "hashes" is all leaf
hashes; that to ["word", kind, round, subkey, binding] is a sealed record of the peer's own, once it has published it.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from subnet.diloco.merkle import HASH_BYTES, leaf_hash, root, verify_range
from subnet.swarm.lines import Dial, Lines
from subnet.swarm.records import LEASE_BYTES, MAX_RECORD_BYTES
from subnet.swarm.traffic import Traffic
from subnet.swarm.wire import CHUNK, Refused, WireError, read, receive, send
from subnet.waiting import end

PROTOCOL = "sn38/blobs/2"
MAX_RANGE = 1024
"""Most leaves one request may ask for."""
MAX_RANGE_BYTES = 8 * 1024 * 1024
"""Most bytes one request may ask for, unless it is for a single leaf."""
LANE_BYTES = 1024 * 1024
"""Bytes that are worth a stream of their own."""
MAX_LANES = 4
"""Streams that one fetch uses at once."""
SMALL_LEAF = 2048
"""Below this many bytes a leaf, on average, a range is sent without its hashes."""
MAX_LEAVES = 2**26
MAX_HEADER_BYTES = 64 * 1024
STALL_SECONDS = 3.0
"""A source that sends nothing for this long is left for the next one; so is one that is too slow, after this long."""
WORD_SECONDS = 20.0
"""Longest that an answer to "word" is waited for; then it is asked for again."""
LATER = ("busy", "not yet", "unknown root")
"""Refusals that may turn into a yes before the deadline."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.8
_WORD_PAUSE = 1.0
_IN_LINE_LEAVES = 8192

Proves = Callable[[int, Sequence[bytes], Sequence[bytes]], bool]
"""Whether hashes of leaves from an index on are in the tree, by a proof (see `verify_range`)."""


class FetchError(Exception):
    """The bytes could not be had in time; the message says what each source did."""


class _Untrustworthy(Exception):
    """A source that sent what cannot be: it is not asked again for this fetch."""


class BlobClient:
    """Fetches from other peers. `binding()` is this peer's current signed binding, shown with every request."""

    def __init__(self, dial: Dial, hotkey: str, binding: Callable[[], bytes], traffic: Traffic) -> None:
        self.lines = Lines(dial, PROTOCOL)
        self.hotkey = hotkey
        self.binding = binding
        self.traffic = traffic

    async def fetch_leaves(
        self,
        sources: Sequence[str],
        root: bytes,
        n_leaves: int,
        start: int,
        stop: int,
        sizes: Callable[[int], int],
        timeout: float,
        owner: str = "",
    ) -> list[bytes]:
        """Leaves `[start, stop)` of the tree with this root and leaf count, every one checked against it.

        `sources` are hotkeys in order of preference. What one source delivered is kept when the next takes over;
        sources that are busy, unreachable or do not have the tree yet are asked again until `timeout` seconds are
        over. A source at whose pace it would not be done by then is left, if there is another. `sizes(i)` is the most
        bytes leaf i may have: no more is ever read. `owner`: of a contribution, whose root is bound to it.

        Raises:
            FetchError: time is up, or no source is left that could deliver.
        """
        if not 0 <= start <= stop <= n_leaves:
            raise ValueError(f"no leaves [{start}, {stop}) in a tree of {n_leaves}")
        proves = partial(verify_range, root, n_leaves, owner=owner)
        lanes = [
            asyncio.create_task(self._fetch_range(sources, root, proves, *lane, sizes, timeout))
            for lane in _lanes(start, stop, sizes)
        ]
        try:
            return [leaf for leaves in await asyncio.gather(*lanes) for leaf in leaves]
        finally:
            await end(lanes)

    async def _fetch_range(
        self,
        sources: Sequence[str],
        root: bytes,
        proves: Proves,
        start: int,
        stop: int,
        sizes: Callable[[int], int],
        timeout: float,
    ) -> list[bytes]:
        done: list[bytes] = []

        async def attempt(source: str, limit: float, alone: bool) -> None:
            pace = _Pace(0 if alone else sum(map(sizes, range(start + len(done), stop))), limit)
            ranges = _ranges(start + len(done), stop, sizes)
            async with self.lines.to(source, _within(limit)) as (reader, writer):
                for number, (first, last) in enumerate(ranges):
                    # The next range is asked for while this one comes, or the line would lie idle in between.
                    for ahead in ranges[:2] if number == 0 else ranges[number + 1 : number + 2]:
                        await send(writer, ["leaves", root, *ahead, self.binding()], _within(limit))
                    await self._read_range(reader, source, proves, first, last, sizes, done, limit, pace)

        await self._from_any(sources, attempt, timeout)
        return done

    async def fetch_hashes(self, sources: Sequence[str], root: bytes, n_leaves: int, timeout: float) -> list[bytes]:
        """All leaf hashes of a tree, checked against its root; `sources` and `timeout` as in `fetch_leaves`.

        Raises:
            FetchError: time is up, or no source is left that could deliver.
        """
        if not 1 <= n_leaves <= MAX_LEAVES:
            raise ValueError(f"no tree has {n_leaves} leaves here")
        hashes: list[bytes] = []

        async def attempt(source: str, limit: float, alone: bool) -> None:
            size = HASH_BYTES * n_leaves
            pace = _Pace(0 if alone else size, limit)
            data = bytearray()
            async with self.lines.to(source, _within(limit)) as (reader, writer):
                await send(writer, ["hashes", root, 0, n_leaves, self.binding()], _within(limit))
                if await receive(reader, 64, _within(limit)) != n_leaves:
                    raise _Untrustworthy("has a tree of another size")
                while len(data) < size:
                    piece = await read(reader, min(CHUNK, size - len(data)), _within(limit))
                    self.traffic.down[source] += len(piece)
                    data += piece
                    if len(data) < size:
                        pace.keep_up(len(piece))
            hashes[:] = [bytes(data[i : i + HASH_BYTES]) for i in range(0, size, HASH_BYTES)]
            if await _root_of(hashes) != root:
                raise _Untrustworthy("sent hashes of another tree")

        await self._from_any(sources, attempt, timeout)
        return hashes

    async def ask_word(self, source: str, kind: str, round_index: int, subkey: str, timeout: float) -> bytes:
        """A sealed record of this peer's own, unverified, as soon as it has published it.

        Raises:
            FetchError: there was none within `timeout` seconds, or the peer does not answer.
        """
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout
        while (left := limit - loop.time()) > 0.0:
            try:
                async with self.lines.to(source, _within(limit)) as (reader, writer):
                    await send(writer, ["word", kind, round_index, subkey, self.binding()], _within(limit))
                    answer = await receive(reader, MAX_RECORD_BYTES + LEASE_BYTES + 8, min(left, WORD_SECONDS))
                if isinstance(answer, bytes):
                    return answer
                raise FetchError("malformed word")
            except WireError as error:
                if isinstance(error, Refused) and not str(error).startswith(LATER):
                    raise FetchError(str(error)) from error
            await asyncio.sleep(max(0.0, min(_jittered(_WORD_PAUSE), limit - loop.time())))
        raise FetchError(f"no word within {timeout:.1f} s")

    async def _from_any(
        self, sources: Sequence[str], attempt: Callable[[str, float, bool], Awaitable[None]], timeout: float
    ) -> None:
        """Run `attempt(source, limit, alone)` with one source after the other, round and round, until one returns."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout
        left = [source for source in dict.fromkeys(sources) if source != self.hotkey]
        reasons: dict[str, str] = {}
        pause = _FIRST_PAUSE
        while left:
            for source in list(left):
                if loop.time() >= limit:
                    raise FetchError(f"not delivered within {timeout:.1f} s: {_told(reasons)}")
                try:
                    await attempt(source, limit, len(left) == 1)
                    return
                except Refused as refusal:
                    reasons[source] = str(refusal)
                    if not reasons[source].startswith(LATER):
                        left.remove(source)
                except WireError as error:
                    reasons[source] = str(error)
                except _Untrustworthy as error:
                    reasons[source] = str(error)
                    left.remove(source)
            await asyncio.sleep(max(0.0, min(_jittered(pause), limit - loop.time())) if left else 0.0)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
        raise FetchError(f"no source left: {_told(reasons)}")

    async def _read_range(
        self,
        reader: asyncio.StreamReader,
        source: str,
        proves: Proves,
        start: int,
        stop: int,
        sizes: Callable[[int], int],
        done: list[bytes],
        limit: float,
        pace: _Pace,
    ) -> None:
        """Append the leaves `[start, stop)`, which have been asked for, to `done` as they arrive and prove right."""
        header = await receive(reader, MAX_HEADER_BYTES, _within(limit))
        lengths, hashes, proof = _checked_header(header, proves, start, stop, sizes)
        unproven: list[bytes] = []
        for index, length in enumerate(lengths):
            data = await read(reader, length, _within(limit))
            self.traffic.down[source] += length
            if hashes and leaf_hash(data) != hashes[index]:
                raise _Untrustworthy("sent a leaf that does not match its hash")
            (done if hashes else unproven).append(data)
            pace.keep_up(length)
        if unproven and not proves(start, [leaf_hash(x) for x in unproven], proof):
            raise _Untrustworthy("cannot prove that its leaves are in the tree")
        done += unproven


class _Pace:
    """What `size` bytes must come at to be there by `limit` (loop time); a size of 0 may take its time."""

    def __init__(self, size: int, limit: float) -> None:
        self._began = asyncio.get_running_loop().time()
        self._rate = size / max(limit - self._began, STALL_SECONDS)
        self._received = 0

    def keep_up(self, num_bytes: int) -> None:
        """So many bytes have come. Raises WireError when that is too slow, but not in the first STALL_SECONDS."""
        self._received += num_bytes
        elapsed = asyncio.get_running_loop().time() - self._began
        if elapsed > STALL_SECONDS and self._received < self._rate * elapsed:
            raise WireError(f"is too slow ({self._received / elapsed / 1000:.1f} kB/s)")


def _lanes(start: int, stop: int, sizes: Callable[[int], int]) -> list[tuple[int, int]]:
    """`[start, stop)` in runs of about equal size to be fetched side by side; one alone where that is little.

    libp2p's window for a single stream keeps a link with delay from being filled.
    """
    sums = list(accumulate(map(sizes, range(start, stop)), initial=0))
    lanes = max(1, min(MAX_LANES, sums[-1] // LANE_BYTES))
    cuts = [start + bisect_left(sums, lane * sums[-1] // lanes) for lane in range(lanes)]
    return [(a, b) for a, b in pairwise([*cuts, stop]) if a < b]


def _ranges(start: int, stop: int, sizes: Callable[[int], int]) -> list[tuple[int, int]]:
    """`[start, stop)` in pieces of what one request may ask for."""
    cuts, size = [start], 0
    for leaf in range(start, stop):
        if leaf - cuts[-1] >= MAX_RANGE or (leaf > cuts[-1] and size + sizes(leaf) > MAX_RANGE_BYTES):
            cuts.append(leaf)
            size = 0
        size += sizes(leaf)
    return list(pairwise([*cuts, stop]))


def _checked_header(
    header: Any, proves: Proves, start: int, stop: int, sizes: Callable[[int], int]
) -> tuple[list[int], list[bytes], list[bytes]]:
    match header:
        case [list() as lengths, list() as hashes, list() as proof]:
            pass
        case _:
            raise _Untrustworthy("sent a malformed header")
    if len(lengths) != stop - start or len(hashes) not in (0, stop - start):
        raise _Untrustworthy("offers another range than asked for")
    for index, length in enumerate(lengths, start):
        if type(length) is not int or not 0 <= length <= sizes(index):
            raise _Untrustworthy("offers a leaf of an impossible size")
    if hashes and not proves(start, hashes, proof):
        raise _Untrustworthy("cannot prove that its leaves are in the tree")
    return lengths, hashes, proof


async def _root_of(hashes: list[bytes]) -> bytes:
    if len(hashes) <= _IN_LINE_LEAVES:
        return root(hashes)
    return await asyncio.to_thread(root, hashes)


def _within(limit: float) -> float:
    """Seconds to wait for the next sign of life."""
    return max(0.0, min(STALL_SECONDS, limit - asyncio.get_running_loop().time()))


def _jittered(pause: float) -> float:
    """A pause of half to all of that length: peers that failed together do not come back together."""
    return pause * random.uniform(0.5, 1.0)


def _told(reasons: dict[str, str]) -> str:
    """What the sources said; three are enough for a log line."""
    shown = [f"{source[:8]} {reason}" for source, reason in list(reasons.items())[:3]]
    return "; ".join(shown) or "nobody to ask"
