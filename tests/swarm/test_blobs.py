"""The client and the service over real streams of this machine, against sources and callers that misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from subnet.chain.keys import Hotkey, verify
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.swarm import blobs
from subnet.swarm.blobs import BlobClient, FetchError
from subnet.swarm.identity import peer_id_of, sign_binding
from subnet.swarm.serve import BlobService, Limits
from subnet.swarm.store import BlobStore
from subnet.swarm.traffic import Traffic
from subnet.swarm.wire import Stream, WireError

from .conftest import HOTKEYS, KEYS, OTHER_RUN, RUN_ID, STRANGER

RNG = random.Random(7)
LEAVES = [RNG.randbytes(1000 + 37 * i) for i in range(40)]
TREE = Tree(hash_leaves(LEAVES))
ROOT = TREE.root
PEER = peer_id_of(bytes(32))
OTHER_PEER = peer_id_of(b"\1" * 32)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def size_of(index: int) -> int:
    return len(LEAVES[index])


class Net:
    """Streams to named sources through Unix sockets; `asked` lists who was dialled and what for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = AsyncExitStack()
        self.asked: list[tuple[str, Any]] = []
        self.traffic = Traffic()
        self.shown = sign_binding(KEYS[0], PEER, RUN_ID, 10).pack()
        self.client = BlobClient(self.dial, KEYS[0].ss58, lambda: self.shown, self.traffic)

    async def dial(self, hotkey: str, protocol: str, seconds: float) -> Stream:
        assert protocol == blobs.PROTOCOL
        try:
            return await asyncio.open_unix_connection(self.folder / hotkey[-8:])
        except OSError as error:
            self.asked.append((hotkey, None))
            raise WireError("cannot be reached") from error

    async def source(self, key: Hotkey, handler: Handler) -> str:
        """Let `handler` answer for `key`; returns its hotkey."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_unix_server(serve, self.folder / key.ss58[-8:])
        self.stack.callback(server.close)
        return key.ss58

    async def honest(self, key: Hotkey, service: BlobService, caller: str = PEER) -> str:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = SimpleNamespace(peer_id=SimpleNamespace(to_base58=lambda: caller))
            await service.serve(peer, reader, writer)  # type: ignore[arg-type]

        return await self.source(key, handler)

    async def fetch(self, sources: list[str], start: int = 0, stop: int = 40, timeout: float = 5.0) -> list[bytes]:
        return await self.client.fetch_leaves(sources, ROOT, len(LEAVES), start, stop, size_of, timeout)


def service_of(limits: Limits | None = None, block: Callable[[], float] = lambda: 100.0, **also: Any) -> BlobService:
    service = BlobService(BlobStore(), RUN_ID, verify, block, Traffic(), limits=limits, **also)
    service.registered = HOTKEYS
    service.store.add(ROOT, LEAVES)
    return service


async def request_of(reader: asyncio.StreamReader) -> Any:
    kind, size = (await reader.readexactly(1))[0], int.from_bytes(await reader.readexactly(4), "big")
    assert kind == 1
    return msgpack.unpackb(await reader.readexactly(size))


def frame(message: Any) -> bytes:
    data = msgpack.packb(message)
    return b"\x01" + len(data).to_bytes(4, "big") + data


def header_of(start: int, stop: int) -> list[Any]:
    return [[len(x) for x in LEAVES[start:stop]], list(TREE.levels[0][start:stop]), TREE.range_proof(start, stop)]


def scenario(tmp_path: Path, body: Callable[[Net], Awaitable[None]]) -> None:
    async def main() -> None:
        net = Net(tmp_path)
        async with net.stack:
            await body(net)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "STALL_SECONDS", 0.3)


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (0, 1), (39, 40), (7, 23), (5, 5)])
def test_any_range(tmp_path: Path, start: int, stop: int) -> None:
    async def body(net: Net) -> None:
        service = service_of()
        source = await net.honest(KEYS[1], service)
        assert await net.fetch([source], start, stop) == LEAVES[start:stop]
        size = sum(map(len, LEAVES[start:stop]))
        assert (service.traffic.up[KEYS[0].ss58], net.traffic.down[source]) == (size, size)

    scenario(tmp_path, body)


def test_long_ranges_are_asked_for_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_RANGE", 7)
    monkeypatch.setattr(blobs, "MAX_RANGE_BYTES", 8000)
    seen: list[tuple[int, int]] = []
    service = service_of()

    async def watched(writer: Any, quota: Any, hotkey: str, entry: Any, start: int, stop: int) -> None:
        seen.append((start, stop))
        await BlobService._send_leaves(service, writer, quota, hotkey, entry, start, stop)

    service._send_leaves = watched  # type: ignore[method-assign]

    async def body(net: Net) -> None:
        assert await net.fetch([await net.honest(KEYS[1], service)]) == LEAVES

    scenario(tmp_path, body)
    assert [a for a, _ in seen[1:]] == [b for _, b in seen[:-1]]
    assert all(sum(map(len, LEAVES[a:b])) <= 8000 and b - a <= 7 for a, b in seen)


def test_hashes(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        source = await net.honest(KEYS[1], service_of())
        assert await net.client.fetch_hashes([source], ROOT, 40, 5.0) == list(TREE.levels[0])
        with pytest.raises(FetchError, match="another size"):
            await net.client.fetch_hashes([source], ROOT, 39, 5.0)

    scenario(tmp_path, body)


def test_forged_hashes_are_refused(tmp_path: Path) -> None:
    async def forger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(frame(40) + bytes(32 * 40))
        await writer.drain()

    async def body(net: Net) -> None:
        bad = await net.source(KEYS[1], forger)
        good = await net.honest(KEYS[2], service_of())
        assert await net.client.fetch_hashes([bad, good], ROOT, 40, 5.0) == list(TREE.levels[0])
        with pytest.raises(FetchError, match="hashes of another tree"):
            await net.client.fetch_hashes([bad], ROOT, 40, 5.0)

    scenario(tmp_path, body)


def test_a_source_that_hangs_is_left_and_its_leaves_are_kept(tmp_path: Path) -> None:
    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, start, stop, _ = await request_of(reader)
        writer.write(frame(header_of(start, stop)) + b"".join(LEAVES[start : start + 11]) + LEAVES[start + 11][:99])
        await writer.drain()
        await reader.read()  # until the caller gives up

    async def body(net: Net) -> None:
        service = service_of()
        slow, good = await net.source(KEYS[1], hangs), await net.honest(KEYS[2], service)
        assert await net.fetch([slow, good]) == LEAVES
        assert net.traffic.down[slow] == sum(map(len, LEAVES[:11]))
        assert net.traffic.down[good] == service.traffic.up[KEYS[0].ss58] == sum(map(len, LEAVES[11:]))

    scenario(tmp_path, body)


def test_a_source_that_drips_is_left_and_its_leaves_are_kept(tmp_path: Path) -> None:
    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, start, stop, _ = await request_of(reader)
        writer.write(frame(header_of(start, stop)))
        for leaf in LEAVES[start:stop]:
            writer.write(leaf)
            await writer.drain()
            await asyncio.sleep(0.2)  # always in time for the next sign of life

    async def body(net: Net) -> None:
        service = service_of()
        slow, good = await net.source(KEYS[1], drips), await net.honest(KEYS[2], service)
        assert await net.fetch([slow, good], timeout=6.0) == LEAVES
        kept = net.traffic.down[slow]
        assert 0 < kept < sum(map(len, LEAVES[:10]))
        assert net.traffic.down[good] == sum(map(len, LEAVES)) - kept
        # Where there is nobody else, slow is better than nothing.
        assert await net.fetch([slow], 0, 4, timeout=6.0) == LEAVES[:4]

    scenario(tmp_path, body)


def test_nobody_delivers(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def body(net: Net) -> None:
        mute = await net.source(KEYS[1], silent)
        started = asyncio.get_running_loop().time()
        with pytest.raises(FetchError, match=r"within 0\.8 s.*(went silent|cannot be reached)"):
            await net.fetch([mute, KEYS[2].ss58], timeout=0.8)
        assert asyncio.get_running_loop().time() - started < 3.0
        with pytest.raises(FetchError, match="nobody to ask"):
            await net.fetch([KEYS[0].ss58])

    scenario(tmp_path, body)


def oversized(start: int, stop: int) -> bytes:
    sizes, hashes, proof = header_of(start, stop)
    return frame([[*sizes[:-1], sizes[-1] + 1], hashes, proof])


LIES: dict[str, tuple[Callable[[int, int], bytes], str]] = {
    "size": (oversized, "impossible size"),
    "negative": (lambda a, b: frame([[-1] * (b - a), *header_of(a, b)[1:]]), "impossible size"),
    "shifted": (lambda a, b: frame(header_of(a + 1, b)), "another range"),
    "other hashes": (lambda a, b: frame([header_of(a, b)[0], [bytes(32)] * (b - a), []]), "cannot prove"),
    "no hashes": (lambda a, b: frame([header_of(a, b)[0], [7] * (b - a), header_of(a, b)[2]]), "cannot prove"),
    "shape": (lambda a, b: frame({"sizes": []}), "malformed header"),
    "leaf": (lambda a, b: frame(header_of(a, b)) + bytes(len(LEAVES[a])), "does not match its hash"),
    "huge frame": (lambda a, b: b"\x01" + (2**31).to_bytes(4, "big") + bytes(100), "malformed frame"),
    "not msgpack": (lambda a, b: b"\x01\x00\x00\x00\x02\xc1\xc1", "malformed frame"),
    "kind": (lambda a, b: b"\x07\x00\x00\x00\x00", "malformed frame"),
    "long refusal": (lambda a, b: b"\x02" + (2**20).to_bytes(4, "big"), "malformed frame"),
    "refusal": (lambda a, b: b"\x02\x00\x00\x00\x08never\x1b[1", r"never\[1"),
}


def test_small_leaves_come_without_hashes_and_are_checked_all_the_same(tmp_path: Path) -> None:
    small = [bytes([i]) * (10 + i) for i in range(40)]
    tree = Tree(hash_leaves(small))
    sent = 0

    async def forger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, start, stop, _ = await request_of(reader)
        leaves = [*small[start : stop - 1], b"?" * len(small[stop - 1])]
        writer.write(frame([[len(x) for x in leaves], [], tree.range_proof(start, stop)]) + b"".join(leaves))

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_of(reader)
        answer = frame([[len(x) for x in small[3:40]], [], tree.range_proof(3, 40)]) + b"".join(small[3:40])
        sent = len(answer)
        writer.write(answer)

    async def body(net: Net) -> None:
        service = service_of()
        service.store.add(tree.root, small)
        bad, good = await net.source(KEYS[1], forger), await net.honest(KEYS[2], service)
        fetch = net.client.fetch_leaves
        assert await fetch([bad, good], tree.root, 40, 3, 40, lambda _: 64, 5.0) == small[3:]
        with pytest.raises(FetchError, match="cannot prove"):
            await fetch([bad], tree.root, 40, 3, 40, lambda _: 64, 5.0)
        again = await net.source(KEYS[1], counting)
        assert await fetch([again], tree.root, 40, 3, 40, lambda _: 64, 5.0) == small[3:]
        assert sent < sum(map(len, small[3:])) + 37 * 2 + 400  # lengths and proof, no hash of every leaf

    scenario(tmp_path, body)


@pytest.mark.parametrize("name", LIES)
def test_a_lying_source_costs_one_attempt(tmp_path: Path, name: str) -> None:
    answer, reason = LIES[name]
    sent = 0

    async def liar(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        _, _, start, stop, _ = await request_of(reader)
        writer.write(answer(start, stop))
        # Whoever reads on would never come to an end.
        try:
            while sent < 50_000_000:
                writer.write(bytes(65536))
                await writer.drain()
                sent += 65536
        except ConnectionError:
            return

    async def body(net: Net) -> None:
        bad, good = await net.source(KEYS[1], liar), await net.honest(KEYS[2], service_of())
        with pytest.raises(FetchError, match=reason):
            await net.fetch([bad], timeout=0.25)
        assert await net.fetch([bad, good]) == LEAVES
        assert net.traffic.down[bad] <= 2 * len(LEAVES[0])

    scenario(tmp_path, body)
    assert sent < 50_000_000


def test_not_before_its_block_and_then_at_once(tmp_path: Path) -> None:
    blocks = iter([49.0, 49.9, 50.0])

    async def body(net: Net) -> None:
        service = BlobService(BlobStore(), RUN_ID, verify, lambda: next(blocks), Traffic())
        service.registered = HOTKEYS
        service.store.add(ROOT, LEAVES, not_before_block=50.0)
        assert await net.fetch([await net.honest(KEYS[1], service)]) == LEAVES
        assert service.refused == {(PEER, "not yet"): 2}

    scenario(tmp_path, body)


def test_a_tree_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        service = service_of()
        service.store.drop(ROOT)
        source = await net.honest(KEYS[1], service)
        fetching = asyncio.create_task(net.fetch([source]))
        while not service.refused[PEER, "unknown root"]:
            await asyncio.sleep(0.01)
        service.store.add(ROOT, LEAVES)
        assert await fetching == LEAVES

    scenario(tmp_path, body)


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        (sign_binding(STRANGER, PEER, RUN_ID, 10).pack(), "the hotkey is not registered"),
        (sign_binding(KEYS[0], OTHER_PEER, RUN_ID, 10).pack(), "names another peer id"),
        (sign_binding(KEYS[0], PEER, OTHER_RUN, 10).pack(), "binding of another run"),
        (sign_binding(KEYS[0], PEER, RUN_ID, 10).pack()[:-1] + b"\0", "binding signature"),
        (b"", "binding size"),
        (bytes(200), "binding encoding"),
    ],
)
def test_strangers_are_refused(tmp_path: Path, binding: bytes, reason: str) -> None:
    async def body(net: Net) -> None:
        service = service_of()
        net.shown = binding
        source = await net.honest(KEYS[1], service)
        with pytest.raises(FetchError, match=f"no source left: .*unauthorised: .*{reason}"):
            await net.fetch([source])
        assert not service.traffic.up
        assert sum(service.refused.values()) == 1

    scenario(tmp_path, body)


def test_a_hotkey_that_moved_leaves_its_old_peer_id_behind(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        service = service_of()
        old, new = await net.honest(KEYS[1], service), await net.honest(KEYS[2], service, OTHER_PEER)
        assert len(await net.fetch([old])) == 40
        net.shown = sign_binding(KEYS[0], OTHER_PEER, RUN_ID, 11).pack()
        assert len(await net.fetch([new])) == 40
        net.shown = sign_binding(KEYS[0], PEER, RUN_ID, 10).pack()
        with pytest.raises(FetchError, match="moved to another peer id"):
            await net.fetch([old])

    scenario(tmp_path, body)


@pytest.mark.parametrize(
    "request_",
    [
        ["leaves", ROOT, 0, 1025],
        ["leaves", ROOT, 5, 5],
        ["leaves", ROOT, -1, 5],
        ["leaves", ROOT, 0, 41],
        ["leaves", ROOT, 0, 2**60],
        ["tensors", ROOT, 0, 1],
        ["leaves", "root", 0, 1],
        [],
        "leaves",
    ],
)
def test_requests_out_of_bounds(tmp_path: Path, request_: Any) -> None:
    async def body(net: Net) -> None:
        source = await net.honest(KEYS[1], service_of())
        reader, writer = await net.dial(source, blobs.PROTOCOL, 1.0)
        writer.write(frame([*request_, net.shown] if isinstance(request_, list) else request_))
        answer = await asyncio.wait_for(reader.read(), 5.0)
        assert answer[0] == 2
        assert b"malformed request" in answer or b"range out of bounds" in answer
        writer.close()

    scenario(tmp_path, body)


def test_streams_and_requests_are_bounded(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        service = service_of(Limits(streams_per_peer=2, request_rate=1e-9, request_burst=4.0, request_seconds=30.0))
        source = await net.honest(KEYS[1], service)
        idle = [await net.dial(source, blobs.PROTOCOL, 1.0) for _ in range(2)]
        while service._open < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(FetchError, match="busy"):
            await net.fetch([source], timeout=0.2)
        for _, writer in idle:
            writer.close()
        while service._open:
            await asyncio.sleep(0.01)
        assert await net.fetch([source]) == LEAVES
        assert await net.fetch([source]) == LEAVES
        with pytest.raises(FetchError, match="too many requests"):
            await net.fetch([source], timeout=0.2)

    scenario(tmp_path, body)


def test_strangers_cannot_keep_registered_peers_out(tmp_path: Path) -> None:
    limits = Limits(streams=12, streams_per_peer=6, strangers=4, streams_per_stranger=2, request_seconds=30.0)

    async def body(net: Net) -> None:
        service = service_of(limits)
        crowd = [peer_id_of(bytes([9, i]) * 16) for i in range(8)]
        doors = [await net.honest(key, service, caller) for key, caller in zip(KEYS[1:4], crowd, strict=False)]
        # Mute strangers take what strangers may have, and a few streams each.
        idle = [await net.dial(door, blobs.PROTOCOL, 1.0) for door in doors for _ in range(3)]
        while service._open + sum(service.refused.values()) < len(idle):
            await asyncio.sleep(0.01)
        assert (service._open, service._strange) == (4, 4)
        assert {peer_id: count for (peer_id, _), count in service.refused.items()} == {
            crowd[0]: 1, crowd[1]: 1, crowd[2]: 3,
        }  # fmt: skip

        # A registered peer that has not been heard of has to wait for them; one that is known does not.
        source = await net.honest(KEYS[4], service)
        with pytest.raises(FetchError, match="busy"):
            await net.fetch([source], timeout=0.2)
        service.known = {PEER}.__contains__
        assert await net.fetch([source]) == LEAVES
        service.known = lambda peer_id: False
        assert await net.fetch([source]) == LEAVES  # it has shown its binding by now
        service.registered = HOTKEYS - {KEYS[0].ss58}
        net.client.lines.close()
        with pytest.raises(FetchError, match="busy"):
            await net.fetch([source], timeout=0.2)
        for _, writer in idle:
            writer.close()
        while service._open:
            await asyncio.sleep(0.01)
        net.client.lines.close()
        while service._resting:
            await asyncio.sleep(0.01)
        assert service._strange == 0 and all(q.strange == q.open == q.resting == 0 for q in service._quotas.values())

    scenario(tmp_path, body)


def test_a_caller_that_says_nothing_or_reads_nothing_is_dropped(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        service = service_of(Limits(request_seconds=0.1, stall_seconds=0.2))
        big = [bytes(2_000_000)] * 4
        service.store.add(Tree(hash_leaves(big)).root, big)
        source = await net.honest(KEYS[1], service)
        mute = await net.dial(source, blobs.PROTOCOL, 1.0)
        assert await asyncio.wait_for(mute[0].read(), 5.0) == b""
        reader, writer = await net.dial(source, blobs.PROTOCOL, 1.0)
        writer.write(frame(["leaves", Tree(hash_leaves(big)).root, 0, 4, net.shown]))
        await writer.drain()
        while not service._open:
            await asyncio.sleep(0.01)
        while service._open:  # it never reads, and is dropped all the same
            await asyncio.sleep(0.01)
        assert service.traffic.up[KEYS[0].ss58] < 8_000_000
        writer.close()
        mute[1].close()
        del reader

    scenario(tmp_path, body)


def test_one_stream_carries_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_RANGE", 7)
    dialled = 0

    async def body(net: Net) -> None:
        nonlocal dialled
        dial = net.client.lines._dial

        async def counting(*args: Any) -> Stream:
            nonlocal dialled
            dialled += 1
            return await dial(*args)

        net.client.lines._dial = counting
        source = await net.honest(KEYS[1], service_of())
        assert await net.fetch([source]) == LEAVES
        assert await net.client.fetch_hashes([source], ROOT, 40, 5.0) == list(TREE.levels[0])
        assert await net.fetch([source], 3, 33) == LEAVES[3:33]
        assert dialled == 1
        with pytest.raises(FetchError, match="another size"):
            await net.client.fetch_hashes([source], ROOT, 39, 5.0)
        assert await net.fetch([source]) == LEAVES
        assert dialled == 2  # what is left of a bad answer is never taken for the next one
        net.client.lines.close()

    scenario(tmp_path, body)


def test_a_stream_that_the_other_end_closed_is_not_used_again(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        service = service_of(Limits(request_seconds=0.05))
        source = await net.honest(KEYS[1], service)
        assert await net.fetch([source], 0, 2) == LEAVES[:2]
        (kept,) = net.client.lines._resting[source]
        while not kept[0][0].at_eof():
            await asyncio.sleep(0.01)
        assert await net.fetch([source], 2, 4) == LEAVES[2:4]
        assert not service.refused

    scenario(tmp_path, body)


class Words:
    """What a service's peer has published, and who waits for it."""

    def __init__(self) -> None:
        self.said: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.asked: list[tuple[str, int, str]] = []

    async def own(self, kind: str, round_index: int, subkey: str, seconds: float) -> bytes | None:
        self.asked.append((kind, round_index, subkey))
        done, _ = await asyncio.wait({self.said}, timeout=seconds)
        return self.said.result() if done else None


def test_a_word_is_waited_for_and_takes_no_place_meanwhile(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        words = Words()
        service = service_of(Limits(streams_per_peer=1), word=words.own)
        source = await net.honest(KEYS[1], service)
        asking = asyncio.create_task(net.client.ask_word(source, "part", 7, "3", 5.0))
        while not words.asked:
            await asyncio.sleep(0.01)
        assert (service._open, service._resting) == (0, 1)
        assert await net.fetch([source]) == LEAVES
        words.said.set_result(b"sealed")
        assert await asking == b"sealed"
        assert words.asked == [("part", 7, "3")]

    scenario(tmp_path, body)


def test_a_word_that_nobody_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_WORD_PAUSE", 0.01)

    async def body(net: Net) -> None:
        words = Words()
        service = service_of(Limits(word_seconds=0.05), word=words.own)
        source = await net.honest(KEYS[1], service)
        with pytest.raises(FetchError, match=r"no word within 0\.3 s"):
            await net.client.ask_word(source, "part", 7, "3", 0.3)
        assert len(words.asked) > 1
        net.shown = b""
        with pytest.raises(FetchError, match="unauthorised"):
            await net.client.ask_word(source, "part", 7, "3", 5.0)

    scenario(tmp_path, body)


def test_those_who_wait_are_bounded(tmp_path: Path) -> None:
    async def body(net: Net) -> None:
        words = Words()
        service = service_of(Limits(resting_per_peer=2), word=words.own)
        source = await net.honest(KEYS[1], service)
        waiting = [asyncio.create_task(net.client.ask_word(source, "part", 7, str(i), 0.5)) for i in range(3)]
        while not service.refused[PEER, "busy: too many wait"]:
            await asyncio.sleep(0.01)
        assert service._resting == 2
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, FetchError)

    scenario(tmp_path, body)
