"""Getting into the swarm and staying there: greet known addresses, say who we are, keep the list of live peers.

Nobody is needed: with no address that answers this peer is a swarm of one and tries again. Greeting addresses from the
chain now and then also heals a swarm that fell into two.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence, Set

from subnet.config import RunConfig, first_difference, from_bytes, run_id
from subnet.errors import ConfigError, UserError
from subnet.swarm import multiaddr, node
from subnet.swarm.bulletin import Bulletin
from subnet.swarm.errors import SwarmError
from subnet.swarm.hello import Greeting
from subnet.swarm.identity import BadBinding, Binding, open_binding
from subnet.swarm.peers import Peer, PeerBook, peer_body
from subnet.swarm.wire import WireError
from subnet.waiting import timeout

log = logging.getLogger(__name__)

PEER_LEASE_S = 60.0
"""How long a peer that went silent is still counted as live, in seconds."""
REFRESH_S = 20.0
"""How often this peer's records are put up again."""
LOOK_AROUND_S = 2.0
"""How often the list of live peers is renewed; after `wake`, sooner by up to `_CALM_S`."""
JOIN_S = 15.0
"""How often known addresses are greeted again; every look-around while nobody is known."""
TWIN_S = 60.0
"""How often it is said that this hotkey runs a second time."""
CLOCK_SKEW_S = 5.0
"""How far the clocks of two peers may differ."""
_CALM_S = 0.5
_JOIN_SECONDS = 3.0
_GREETED = 6
_FEW = 8
_PEERS_PER_CALL = 45

Connected = Callable[[], Awaitable[Set[str]]]
Hello = Callable[[Sequence[str]], Awaitable[Greeting]]


class Membership:
    """Keeps `book` current.

    `addresses` are this peer's own, `bootstrap` others' with peer ids from the user. `hello` asks the peer at some
    addresses for its run, `connected` tells the peer ids libp2p is connected to; both may raise WireError.
    """

    def __init__(
        self,
        bulletin: Bulletin,
        book: PeerBook,
        run: RunConfig,
        binding: Binding,
        addresses: Sequence[str],
        bootstrap: Sequence[str],
        hello: Hello,
        connected: Connected,
    ) -> None:
        self.bulletin = bulletin
        self.book = book
        self.run = run
        self.binding = binding
        self.addresses = addresses
        self.bootstrap = [_bootstrap_peer(text) for text in bootstrap]
        self.hello = hello
        self.connected = connected
        self.wake = asyncio.Event()
        self._nodes = 0
        self._members: list[str] = []
        self._alone_told = False
        self._differs_told = False
        self._entered = time.time()
        self._twin_told = -TWIN_S

    async def enter(self) -> None:
        """First contact.

        Raises:
            UserError: another peer runs this hotkey.
            SwarmError: the DHT process has ended.
        """
        await self._tell_members()
        await self._join()
        await self._refuse_to_be_a_twin()
        self._entered = time.time()
        await self._announce()
        await self._look_around()

    async def keep_up(self) -> None:
        """Stay a member until cancelled, or until the DHT process ends."""
        loop = asyncio.get_running_loop()
        joined = announced = loop.time()
        while self.bulletin.control.alive:
            try:
                if loop.time() - joined >= JOIN_S or not self._nodes:
                    joined = loop.time()
                    await self._join()
                if loop.time() - announced >= REFRESH_S:
                    announced = loop.time()
                    await self._announce()
                    await self.bulletin.publish_again()
                await self._look_around()
            except SwarmError as error:
                log.warning("%s", error)
            self.wake.clear()
            await asyncio.sleep(_CALM_S)
            try:
                async with timeout(LOOK_AROUND_S - _CALM_S):
                    await self.wake.wait()
            except asyncio.TimeoutError:
                continue
        log.error("the swarm's DHT process has ended; this neuron is cut off until it is started again")

    async def _join(self) -> None:
        known = [*self.bootstrap, *self.book.on_chain.values(), *self.book.live.values()]
        validators = {p.peer_id for p in self.book.on_chain.values() if p.permit}
        others = {p.peer_id: p for p in known if p.peer_id != self.binding.peer_id and p.maddrs}
        # Validators first: they are few, known to all, and stay.
        drawn = random.sample(sorted(others), len(others))
        chosen = sorted(drawn, key=lambda peer_id: peer_id not in validators)[:_GREETED]
        before = self._nodes
        for at in range(0, max(1, len(chosen)), 2):
            greeted = [(i, [multiaddr.to_text(m) for m in others[i].maddrs]) for i in chosen[at : at + 2]]
            answer = await self.bulletin.call(node.join, greeted, _JOIN_SECONDS, seconds=_JOIN_SECONDS + 1.0)
            self._nodes = before if answer is None else answer
        if self._nodes and not before:
            log.info("joined the swarm: %d nodes known", self._nodes)
            await self.bulletin.publish_again()
            self._alone_told = False
        if not self._nodes:
            if others and not self._alone_told:
                log.warning("none of %d known peers can be reached; alone for now, trying again", len(others))
                self._alone_told = True
            await self._look_for_another_run()

    async def _announce(self) -> None:
        await self.bulletin.publish("peer", 0, peer_body(self.binding, self.addresses), "", PEER_LEASE_S)

    async def _look_around(self) -> None:
        self.book.learn(await self.bulletin.find("peer", 0))
        self._look_for_a_twin()
        try:
            self.book.note_connections(await self.connected())
        except WireError as error:
            log.debug("libp2p %s", error)
        await self._tell_members()

    async def _refuse_to_be_a_twin(self) -> None:
        """Before this peer says anything: does its hotkey run already? What left a stale record does not answer."""
        self.book.learn(await self.bulletin.find("peer", 0))
        known = [peer for peer in (self.book.own_record, self.book.own_on_chain) if peer is not None]
        for peer in {peer.peer_id: peer for peer in known if peer.peer_id != self.binding.peer_id}.values():
            if await self._speaks_for_us(peer):
                raise UserError(
                    f"hotkey {self.binding.hotkey} is already running as peer {peer.peer_id}; "
                    "a hotkey may run once: stop the other"
                )

    async def _speaks_for_us(self, peer: Peer) -> bool:
        if not peer.maddrs:
            return False
        try:
            greeting = await self.hello([multiaddr.to_text(m) + f"/p2p/{peer.peer_id}" for m in peer.maddrs])
            run = run_id(from_bytes(greeting.run_config))
            theirs = open_binding(greeting.binding, run_id=run, verify=self.book.verify)
        except (WireError, ConfigError, BadBinding) as error:
            log.debug("asked %s for whom it speaks: %s", peer.peer_id, error)
            return False
        return (theirs.hotkey, theirs.peer_id) == (self.binding.hotkey, peer.peer_id)

    def _look_for_a_twin(self) -> None:
        """Say it when the hotkey's latest record is another peer's, and was signed since this one entered."""
        twin, now = self.book.own_record, asyncio.get_running_loop().time()
        if twin is None or twin.peer_id == self.binding.peer_id or now - self._twin_told < TWIN_S:
            return
        if twin.seen - PEER_LEASE_S > self._entered + CLOCK_SKEW_S:
            self._twin_told = now
            log.error(
                "hotkey %s is also running as peer %s; a hotkey may run once, and both lose by it: stop one",
                self.binding.hotkey, twin.peer_id,
            )  # fmt: skip

    async def _tell_members(self) -> None:
        """Let the DHT process know who is vouched for; while few are live, the chain's word counts too."""
        found = {peer.peer_id for peer in self.book.reachable().values()}
        if len(found) < _FEW:
            found |= {peer.peer_id for peer in self.book.on_chain.values()}
        members = sorted(found - {self.binding.peer_id})
        if members != self._members:
            for at in range(0, max(1, len(members)), _PEERS_PER_CALL):
                piece = members[at : at + _PEERS_PER_CALL]
                await self.bulletin.call(node.set_members, piece, at == 0, seconds=_JOIN_SECONDS)
            self._members = members

    async def _look_for_another_run(self) -> None:
        """When alone, ask somebody the chain lists under another run in what it differs, and say so once."""
        if self._differs_told or not self.book.other_runs:
            return
        peer = random.choice(self.book.other_runs)
        if not peer.maddrs:
            return
        try:
            greeting = await self.hello([multiaddr.to_text(m) + f"/p2p/{peer.peer_id}" for m in peer.maddrs])
            theirs = from_bytes(greeting.run_config)
        except (WireError, ConfigError) as error:
            log.debug("asked %s for its run: %s", peer.hotkey, error)
            return
        self._differs_told = True
        if greeting.protocol != self.run.protocol:
            difference: str | None = f"protocol: {self.run.protocol} here, {greeting.protocol} there"
        else:
            difference = first_difference(self.run, theirs)
        log.warning("%s is in another run and cannot be joined (%s)", peer.hotkey, difference)


def _bootstrap_peer(text: str) -> Peer:
    address, raw = multiaddr.without_peer(multiaddr.to_bytes(text))
    if raw is None:
        raise ValueError(f"{text} does not name a peer id (.../p2p/12D3...)")
    return Peer("", multiaddr.peer_id_text(raw), (address,))
