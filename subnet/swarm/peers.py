"""Who is in the swarm and where: hotkeys with their authenticated peer ids and addresses.

Learnt from the chain's commitments at the start and from signed "peer" records from then on. An address is somebody's
claim: it is dialled only where this peer dials anyway, and what answers there must still prove to be that peer id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from subnet.swarm import multiaddr
from subnet.swarm.identity import BadBinding, Binding, ChainCommitment, Verify, open_binding
from subnet.swarm.records import BadRecord, Record

MAX_ADDRESSES = 8


@dataclass(frozen=True)
class Peer:
    """A registered hotkey's libp2p peer and its dialable addresses (binary, without peer ids)."""

    hotkey: str
    peer_id: str
    maddrs: tuple[bytes, ...]
    seen: float = 0.0
    """Unix time until which its latest "peer" record counts; 0 when only the chain speaks of it."""
    permit: bool = False
    """Whether it is a validator, by the chain."""


class MetagraphRow(Protocol):
    """What is read of a row of the metagraph."""

    @property
    def hotkey(self) -> str: ...

    @property
    def commitment(self) -> bytes | None: ...

    @property
    def permit(self) -> bool: ...


class PeerBook:
    """The peers this one knows. `reach` is how far its own addresses carry: nearer ones of others are not dialled."""

    def __init__(self, run_id: bytes, verify: Verify, own: str, reach: Set[str] = frozenset()) -> None:
        self.run_id = run_id
        self.verify = verify
        self.own = own
        self.reach = reach
        self.live: dict[str, Peer] = {}
        self.on_chain: dict[str, Peer] = {}
        self.other_runs: list[Peer] = []
        self.own_record: Peer | None = None
        """What the latest "peer" record of this peer's own hotkey says; not this peer if another runs it as well."""
        self.own_on_chain: Peer | None = None
        """What this peer's own hotkey has committed on chain, maybe as another peer and in another run."""
        self._down: dict[str, float] = {}
        self._connected: Set[str] = frozenset()
        self._opened: dict[bytes, tuple[str, tuple[bytes, ...]]] = {}

    def learn_chain(self, rows: Iterable[MetagraphRow]) -> None:
        """Take over the addresses that registered hotkeys committed on chain, for this run and for others."""
        found: dict[str, Peer] = {}
        other_runs: list[Peer] = []
        self.own_on_chain = None
        for row in rows:
            if row.commitment is None:
                continue
            try:
                commitment = ChainCommitment.unpack(row.commitment)
            except ValueError:
                continue
            maddrs = self._dialable(multiaddr.to_bytes(m) for m in commitment.maddrs)
            peer = Peer(row.hotkey, commitment.peer_id, maddrs, permit=row.permit)
            if row.hotkey == self.own:
                self.own_on_chain = peer
            elif commitment.run_id_prefix == self.run_id[:8]:
                found[row.hotkey] = peer
            else:
                other_runs.append(peer)
        self.on_chain, self.other_runs = found, other_runs

    def learn(self, records: Iterable[tuple[Record, float]]) -> None:
        """Replace the live peers by those of the given verified "peer" records (with the Unix time each counts until).

        Malformed ones are left out: the DHT process has refused and counted them already.
        """
        live: dict[str, Peer] = {}
        opened: dict[bytes, tuple[str, tuple[bytes, ...]]] = {}
        for record, until in records:
            known = self._opened.get(record.signature)
            if known is None:
                try:
                    binding, maddrs = open_peer(record, run_id=self.run_id, verify=self.verify)
                except BadRecord:
                    continue
                known = binding.peer_id, self._dialable(maddrs)
            opened[record.signature] = known
            live[record.hotkey] = Peer(record.hotkey, *known, until)
        self.own_record = live.pop(self.own, None)
        self.live, self._opened = live, opened

    def find(self, hotkey: str) -> Peer | None:
        """Where to reach a hotkey: its own latest word, else the chain's."""
        return self.live.get(hotkey) or self.on_chain.get(hotkey)

    def vouched(self, peer_id: str) -> bool:
        """Whether a registered hotkey says, in its record or on chain, that this peer id speaks for it."""
        return any(p.peer_id == peer_id for peers in (self.live, self.on_chain) for p in peers.values())

    def reachable(self) -> Mapping[str, Peer]:
        """Live peers, but for those that could not be reached and have not said anything new since."""
        return {h: p for h, p in self.live.items() if self._down.get(h) != p.seen}

    def note_connections(self, connected: Set[str]) -> None:
        """Take over which peer ids libp2p is connected to: a connection that broke is the first sign of a death."""
        for hotkey, peer in self.live.items():
            if peer.peer_id in connected:
                self.mark_up(hotkey)
            elif peer.peer_id in self._connected:
                self.mark_down(hotkey)
        self._connected = connected

    def mark_down(self, hotkey: str) -> None:
        """Note that a live peer could not be reached."""
        peer = self.live.get(hotkey)
        if peer is not None:
            self._down[hotkey] = peer.seen

    def mark_up(self, hotkey: str) -> None:
        """Note that a peer was reached after all."""
        self._down.pop(hotkey, None)

    def _dialable(self, maddrs: Iterable[bytes]) -> tuple[bytes, ...]:
        return tuple(m for m in maddrs if multiaddr.reach(m) == "public" or multiaddr.reach(m) in self.reach)


def peer_body(binding: Binding, maddrs: Sequence[str]) -> dict[str, Any]:
    """The record body published under kind "peer"."""
    plain = [multiaddr.without_peer(multiaddr.to_bytes(m))[0] for m in maddrs]
    return {"binding": binding.pack(), "maddrs": list(dict.fromkeys(plain))[:MAX_ADDRESSES]}


def open_peer(record: Record, *, run_id: bytes, verify: Verify) -> tuple[Binding, list[bytes]]:
    """Check the body of a verified "peer" record; returns its binding and its binary addresses.

    Raises:
        BadRecord: a malformed field, an address that cannot be dialled, or a binding that is not its author's.
    """
    match record.body:
        case {"binding": bytes() as shown, "maddrs": list() as maddrs, **rest} if not rest:
            pass
        case _:
            raise BadRecord("peer fields")
    if len(maddrs) > MAX_ADDRESSES:
        raise BadRecord("peer addresses")
    try:
        binding = open_binding(shown, run_id=run_id, verify=verify)
        for address in maddrs:
            if not isinstance(address, bytes) or multiaddr.without_peer(address)[1] is not None:
                raise BadRecord("peer addresses")
    except BadBinding as error:
        raise BadRecord(f"peer {error}") from error
    except ValueError as error:
        raise BadRecord("peer addresses") from error
    if binding.hotkey != record.hotkey:
        raise BadRecord("peer binding of another hotkey")
    return binding, maddrs
