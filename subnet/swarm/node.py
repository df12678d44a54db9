"""The DHT process: hivemind's node with our rules, and the look-ups that run inside it.

The walk replaces upstream's `get` and `store`: it merges what all replicas hold, never waits for a silent peer while
others answer, and always ends at its time limit. It asks the nearest registered peers beside the nearest of all, so
that strangers who crowd around a key hide nothing. The routing table and the RPCs are hivemind's (Kademlia,
Maymounkov and Mazieres 2002).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import hivemind
from hivemind.dht.crypto import DHTRecord
from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DHTLocalStorage, DictionaryDHTValue
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError
from hivemind.utils import MSGPackSerializer
from hivemind.utils.multiaddr import Multiaddr

from subnet.swarm import process
from subnet.swarm.gate import RecordGate

REPLICAS = 5
"""Nearest peers that keep a record, beside its author."""
READS = 4
"""Nearest peers a look-up asks, beside this one's own storage."""
MAX_ASKED = 24
"""Most peers one walk asks."""
RPC_SECONDS = 2.0
"""After this long without a reply a peer leaves the routing table, and nobody is asked again for five seconds."""
GRACE_S = 0.15
"""How long a walk waits for stragglers at least, once somebody has answered."""

_MAX_KEYS = 1024

Found = dict[str, tuple[bytes, float]]


class DhtProcess(hivemind.DHT):
    """hivemind's DHT in a process that dies with its parent and takes the libp2p daemon along."""

    def __init__(
        self,
        gate: RecordGate,
        claim: process.HomeClaim,
        identity: Path,
        peer_id: str,
        host: Sequence[str],
        announce: Sequence[str],
    ) -> None:
        self.gate = gate
        self.claim = claim
        self.background: set[asyncio.Task[Any]] = set()
        self.incoming: set[str] = set()
        self.members: dict[DHTID, PeerID] = {}
        super().__init__(
            start=False,
            record_validators=[gate],
            identity_path=str(identity),
            check_if_identity_free=False,
            node_id=node_id_of(PeerID.from_base58(peer_id)),
            host_maddrs=list(host),
            announce_maddrs=list(announce) or None,
            use_relay=False,
            auto_nat=False,
            nat_port_map=False,
            num_replicas=REPLICAS,
            wait_timeout=RPC_SECONDS,
            backoff_rate=1.0,
            cache_locally=False,
            cache_nearest=0,
            cache_on_store=False,
            cache_refresh_before_expiry=0,
        )

    def run(self) -> None:
        """The body of the process."""
        process.forget_parent_signals()
        process.die_with_parent(self._parent_pid, self._kill_p2pd)
        process.leash_subprocesses()
        P2P._UNIX_SOCKET_PREFIX = f"/unix{self.claim.sockets}/"
        # Two peers that dial each other at once from their listening ports both fail, as if they met in one TCP
        # connection, and libp2p does not dial again for seconds (with a way of 25 ms between four peers the first
        # scatter took 3 to 34 s, and 0.4 s without). Nothing here needs the port: no relay, no hole punching.
        os.environ["LIBP2P_TCP_REUSEPORT"] = "false"
        super().run()

    def _kill_p2pd(self) -> None:
        node = getattr(self, "_node", None)
        if node is not None:
            with suppress(ProcessLookupError):
                os.kill(node.p2p._child.pid, signal.SIGKILL)


class Storage(DHTLocalStorage):
    """hivemind's storage, but a record that is already held leaves no trace: upstream grows by an entry each time."""

    def store_subkey(self, key: DHTID, subkey: Any, value: bytes, expiration_time: float) -> bool:
        """Keep a newer value; False for one that is not newer."""
        held = self.get(key)
        if held is not None and isinstance(held.value, DictionaryDHTValue):
            entry = held.value.get(subkey)
            if entry is not None and entry.expiration_time >= expiration_time:
                return False
        return bool(super().store_subkey(key, subkey, value, expiration_time))


async def settle(dht: DhtProcess, node: DHTNode) -> tuple[int, str, list[str]]:
    """First call: put our storage and rules in place, and end this process if the libp2p daemon ends.

    Returns the daemon's process id, its control address, and the addresses it is reached by.
    """

    async def watch() -> None:
        await node.p2p._child.wait()
        if node.is_alive:
            os._exit(1)

    table = node.protocol.routing_table
    add = table.add_or_update_node
    table.add_or_update_node = lambda uid, peer: add(uid, peer) if uid == node_id_of(peer) else None
    node.protocol._validate_dictionary = dht.gate.keep_valid
    node.protocol.storage, node.protocol.cache = Storage(maxsize=_MAX_KEYS), Storage(maxsize=_MAX_KEYS)
    _keep(dht, watch())
    maddrs = await node.p2p.get_visible_maddrs(latest=True)
    return node.p2p._child.pid, str(node.p2p.daemon_listen_maddr), [str(m) for m in maddrs]


async def configure(
    dht: DhtProcess, node: DHTNode, hotkeys: list[str], first: bool, last: bool, rounds: tuple[int, int]
) -> None:
    """Take over the registered hotkeys, in pieces that fit the control pipe, and the rounds `[start, stop)`."""
    dht.incoming = set(hotkeys) if first else dht.incoming | set(hotkeys)
    if last:
        dht.gate.registered = frozenset(dht.incoming)
        dht.gate.rounds = range(*rounds)


async def set_members(dht: DhtProcess, node: DHTNode, peer_ids: list[str], first: bool) -> None:
    """Take over, in pieces, the peer ids that registered hotkeys have vouched for."""
    peers = [PeerID.from_base58(peer_id) for peer_id in peer_ids]
    members = {node_id_of(peer): peer for peer in peers}
    dht.members = members if first else {**dht.members, **members}


async def join(dht: DhtProcess, node: DHTNode, peers: list[tuple[str, list[str]]], seconds: float) -> int:
    """Connect to `peers` (peer id, addresses), find this node's neighbours; returns how many nodes are known then."""

    async def greet(peer_id: PeerID, maddrs: list[str]) -> None:
        with suppress(P2PDaemonError, OSError, asyncio.IncompleteReadError):
            await node.p2p._client.connect(peer_id, [Multiaddr(m) for m in maddrs])
            await node.protocol.call_ping(peer_id)

    tasks = [_keep(dht, greet(PeerID.from_base58(peer_id), maddrs)) for peer_id, maddrs in peers]
    if tasks:
        await asyncio.wait(tasks, timeout=seconds / 2)
    await walk(dht, node, node.node_id, 2 * REPLICAS, seconds / 2)
    return len(node.protocol.routing_table.uid_to_peer_id)


async def lookup(
    dht: DhtProcess, node: DHTNode, key: str, seconds: float
) -> tuple[list[bytes], dict[tuple[str, str], int]]:
    """All values under `key` that this peer and the nearest ones hold; also the refusals since the last look-up."""
    key_id = DHTID.generate(source=key)
    found: Found = {}
    local = node.protocol.storage.get(key_id)
    if local is not None:
        _merge(found, local.value)
    await walk(dht, node, key_id, READS, seconds, lambda value: _merge(found, value))
    return [MSGPackSerializer.loads(value) for value, _ in found.values()], dht.gate.drain_rejected()


async def store(
    dht: DhtProcess, node: DHTNode, key: str, subkey: str, value: bytes, expires: float, seconds: float
) -> int:
    """Keep `value` here and at the nearest peers; returns how many hold it, this one included."""
    protocol = node.protocol
    key_id = DHTID.generate(source=key)
    packed = MSGPackSerializer.dumps(value)
    record = DHTRecord(key_id.to_bytes(), MSGPackSerializer.dumps(subkey), packed, expires)
    if not dht.gate.validate(record):
        return 0
    protocol.storage.store_subkey(key_id, subkey, packed, expires)
    limit = asyncio.get_running_loop().time() + seconds
    nearest = _nearest(dht, key_id, _known(dht, node, key_id, REPLICAS), REPLICAS)
    if len(protocol.routing_table.uid_to_peer_id) > protocol.bucket_size:
        # Only a table that still has everybody in it knows who is nearest without asking.
        nearest = await walk(dht, node, key_id, REPLICAS, seconds / 2)
    tasks = {_keep(dht, protocol.call_store(peer, [key_id], [packed], [expires], [subkey])) for _, peer in nearest}
    held = 1
    async for answer in _as_answered(tasks, limit):
        held += answer is not None and bool(answer[0])
    return held


async def walk(
    dht: DhtProcess,
    node: DHTNode,
    target: DHTID,
    width: int,
    seconds: float,
    on_value: Callable[[Any], None] | None = None,
) -> list[tuple[DHTID, PeerID]]:
    """Ask the peers nearest to `target` until the nearest `width` (of all and of members) that answer have been asked.

    Returns those. Values found under `target` go to `on_value`. Peers that are silent while others answer are not
    waited for.
    """
    limit = asyncio.get_running_loop().time() + seconds
    known = _known(dht, node, target, width)
    asked: set[DHTID] = set()
    silent: set[DHTID] = set()

    async def ask(uid: DHTID, peer: PeerID) -> tuple[DHTID, Any]:
        return uid, await node._call_find_with_blacklist(peer, [target])

    while len(asked) < MAX_ASKED:
        waiting = {uid for uid, _ in _nearest(dht, target, known, width, silent)} - asked
        tasks = {_keep(dht, ask(uid, known[uid])) for uid in waiting}
        if not tasks:
            break
        asked |= waiting
        async for uid, response in _as_answered(tasks, limit):
            if response is None:
                continue
            waiting.discard(uid)
            value, neighbours = response[target]
            if value is not None and on_value is not None:
                on_value(value.value)
            for other, peer in neighbours.items():
                if other != node.node_id and other == node_id_of(peer):
                    known.setdefault(other, peer)
        silent |= waiting
        if asyncio.get_running_loop().time() >= limit:
            break
    return _nearest(dht, target, {uid: known[uid] for uid in asked}, width, silent)


def node_id_of(peer: PeerID) -> DHTID:
    """A peer's place in the DHT: it follows from its key, so a restarted peer keeps it and nobody picks one freely."""
    return DHTID.generate(source=peer.to_bytes())


def _known(dht: DhtProcess, node: DHTNode, target: DHTID, width: int) -> dict[DHTID, PeerID]:
    """What this node knows of the neighbourhood of `target`: routing table and members."""
    known = dict(node.protocol.routing_table.get_nearest_neighbors(target, width, exclude=node.node_id))
    known.update(_nearest(dht, target, dht.members, width))
    known.pop(node.node_id, None)
    return known


def _nearest(
    dht: DhtProcess, target: DHTID, known: dict[DHTID, PeerID], width: int, without: Set[DHTID] = frozenset()
) -> list[tuple[DHTID, PeerID]]:
    """The `width` nearest of `known`, and the `width` nearest members among them, which are mostly the same."""
    ranked = sorted(known.keys() - without, key=target.xor_distance)
    chosen = [*ranked[:width], *[uid for uid in ranked if uid in dht.members][:width]]
    return [(uid, known[uid]) for uid in dict.fromkeys(chosen)]


async def _as_answered(tasks: set[asyncio.Task[Any]], limit: float) -> Any:
    """Results as they come, until `limit`, or until the rest take several times longer than the slowest answer."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    patience = limit
    while tasks:
        done, tasks = await asyncio.wait(tasks, timeout=max(0.0, patience - loop.time()), return_when="FIRST_COMPLETED")
        if not done:
            return
        now = loop.time()
        patience = min(limit, now + max(GRACE_S, 2.0 * (now - started)))
        for task in done:
            yield task.result()


def _merge(found: Found, value: Any) -> None:
    if isinstance(value, DictionaryDHTValue):
        for subkey, (packed, expires) in value.items():
            if subkey not in found or expires > found[subkey][1]:
                found[subkey] = (packed, expires)


def _keep(dht: DhtProcess, work: Any) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(work)
    dht.background.add(task)
    task.add_done_callback(dht.background.discard)
    return task
