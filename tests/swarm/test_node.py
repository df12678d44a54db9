"""The walk over simulated networks: hivemind's own routing tables, and peers that answer, hide, lie or say nothing."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hivemind.dht.routing import DHTID, RoutingTable
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.p2p import PeerID
from hivemind.utils.timed_storage import ValueWithExpiration, get_dht_time

from subnet.swarm.identity import peer_id_bytes, peer_id_of
from subnet.swarm.node import MAX_ASKED, READS, REPLICAS, Storage, _merge, node_id_of, set_members, walk

KEY = DHTID.generate(source="sn38/key")


def peer(i: int) -> PeerID:
    return PeerID(peer_id_bytes(peer_id_of(random.Random(i).randbytes(32))))


class Network:
    """Nodes by id; each has a routing table and what it holds under `KEY`. `asked` lists who was asked."""

    def __init__(self, peers: list[PeerID]) -> None:
        self.peers = {node_id_of(p): p for p in peers}
        self.by_peer = {p: uid for uid, p in self.peers.items()}
        self.held: dict[DHTID, DictionaryDHTValue] = {}
        self.tables = {uid: RoutingTable(uid, 20, 5) for uid in self.peers}
        for uid, table in self.tables.items():
            for other in random.Random(int(uid) % 997).sample(sorted(self.peers), len(self.peers)):
                if other != uid:
                    table.add_or_update_node(other, self.peers[other])
        self.asked: list[DHTID] = []
        self.silent: set[DHTID] = set()
        self.crowd: list[DHTID] = []

    def put(self, subkey: str, width: int = REPLICAS) -> None:
        """What an honest author does: keep it at the nearest nodes."""
        for uid in sorted(self.peers, key=KEY.xor_distance)[:width]:
            self.held.setdefault(uid, DictionaryDHTValue()).store(subkey, subkey.encode(), get_dht_time() + 60)

    async def find(self, recipient: PeerID, keys: list[DHTID]) -> Any:
        uid = node_id_of(recipient)
        self.asked.append(uid)
        if uid in self.silent:
            await asyncio.sleep(3600)
        if uid in self.crowd:
            return {KEY: (None, {other: peer_of for other, peer_of in self.crowd_peers.items() if other != uid})}
        held = self.held.get(uid)
        value = None if held is None else ValueWithExpiration(held, held.latest_expiration_time)
        return {keys[0]: (value, dict(self.tables[uid].get_nearest_neighbors(keys[0], 20)))}

    def surround(self, count: int) -> None:
        """Strangers whose keys were ground until they lie nearer to `KEY` than everybody else."""
        nearest = min(map(KEY.xor_distance, self.peers))
        crowd = [PeerID(b"\x12\x20" + i.to_bytes(32, "big")) for i in range(16 * count * len(self.peers))]
        self.crowd_peers = {node_id_of(p): p for p in crowd if KEY.xor_distance(node_id_of(p)) < nearest}
        self.crowd = list(self.crowd_peers)[:count]
        self.crowd_peers = {uid: self.crowd_peers[uid] for uid in self.crowd}
        for table in self.tables.values():
            for uid in self.crowd:
                table.add_or_update_node(uid, self.crowd_peers[uid])

    async def read(self, uid: DHTID, members: list[PeerID], seconds: float = 5.0) -> set[str]:
        dht = SimpleNamespace(background=set(), members={})
        protocol = SimpleNamespace(routing_table=self.tables[uid])
        node = SimpleNamespace(node_id=uid, protocol=protocol, _call_find_with_blacklist=self.find)
        await set_members(dht, node, [p.to_base58() for p in members], True)  # type: ignore[arg-type]
        found: dict[str, Any] = {}
        await walk(dht, node, KEY, READS, seconds, lambda value: _merge(found, value))  # type: ignore[arg-type]
        for task in dht.background:
            task.cancel()
        return set(found)


@pytest.mark.parametrize("size", [2, 7, 150])
def test_what_was_kept_is_found_from_everywhere(size: int) -> None:
    async def main() -> None:
        net = Network([peer(i) for i in range(size)])
        net.put("a")
        net.put("b")
        for uid in random.Random(1).sample(sorted(net.peers), min(size, 25)):
            if uid not in net.held or size > 2:
                net.asked.clear()
                assert await net.read(uid, []) == {"a", "b"}
                assert len(net.asked) == len(set(net.asked)) <= MAX_ASKED

    asyncio.run(main())


def test_silent_peers_cost_a_moment_not_the_answer() -> None:
    async def main() -> None:
        net = Network([peer(i) for i in range(30)])
        net.put("a")
        nearest = sorted(net.peers, key=KEY.xor_distance)
        net.silent = set(nearest[:3])
        started = asyncio.get_running_loop().time()
        assert await net.read(nearest[-1], []) == {"a"}
        assert asyncio.get_running_loop().time() - started < 3.0
        net.silent = set(nearest)
        started = asyncio.get_running_loop().time()
        assert await net.read(nearest[-1], [], seconds=0.3) == set()
        assert asyncio.get_running_loop().time() - started < 2.0

    asyncio.run(main())


def test_strangers_around_a_key_hide_nothing_from_those_who_know_the_members() -> None:
    async def main() -> None:
        honest = [peer(i) for i in range(40)]
        net = Network(honest)
        net.put("a")
        net.surround(8)
        assert len(net.crowd) == 8
        reader = max(net.peers, key=KEY.xor_distance)
        assert await net.read(reader, []) == set()
        assert await net.read(reader, honest) == {"a"}
        assert len(net.asked) <= 2 * MAX_ASKED

    asyncio.run(main())


def test_a_made_up_place_in_the_dht_is_not_asked() -> None:
    async def main() -> None:
        net = Network([peer(i) for i in range(6)])
        net.put("a")
        liar = min(net.peers, key=KEY.xor_distance)
        made_up = DHTID(int(KEY) ^ 1)
        net.tables[liar].add_or_update_node(made_up, peer(99))
        await net.read(max(net.peers, key=KEY.xor_distance), [])
        assert node_id_of(peer(99)) not in net.asked

    asyncio.run(main())


def test_a_record_held_already_leaves_no_trace() -> None:
    storage = Storage()
    until = get_dht_time() + 60
    assert storage.store_subkey(KEY, "a", b"1", until)
    size = len(storage.get(KEY).value.expiration_heap), len(storage.expiration_heap)
    for _ in range(100):
        assert not storage.store_subkey(KEY, "a", b"1", until)
        assert not storage.store_subkey(KEY, "a", b"0", until - 1)
    assert size == (len(storage.get(KEY).value.expiration_heap), len(storage.expiration_heap))
    assert storage.store_subkey(KEY, "a", b"2", until + 1)
    assert storage.get(KEY).value.get("a").value == b"2"
    assert storage.store_subkey(KEY, "b", b"3", until)
