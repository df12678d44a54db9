"""This peer's place in the swarm: its DHT process, its records, its blobs, and the upkeep of all three.

Everything here runs on the caller's event loop; the DHT and the libp2p daemon are processes of their own that end with
this one. It moves records and leaves and does not know what they mean.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from hivemind.p2p import P2P
from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo
from hivemind.utils.multiaddr import Multiaddr

from subnet.chain.keys import verify as verify_sr25519
from subnet.config import NodeConfig, RunConfig, run_id, to_bytes
from subnet.errors import UserError
from subnet.swarm import blobs, hello, multiaddr
from subnet.swarm.blobs import BlobClient, FetchError
from subnet.swarm.bulletin import Bulletin
from subnet.swarm.control import DhtControl
from subnet.swarm.gate import RecordGate
from subnet.swarm.hello import Greeting
from subnet.swarm.identity import ChainCommitment, Signer, Verify, load_identity, sign_binding
from subnet.swarm.membership import Membership
from subnet.swarm.node import DhtProcess
from subnet.swarm.peers import MetagraphRow, Peer, PeerBook
from subnet.swarm.process import HomeClaim
from subnet.swarm.records import MAX_LEASE_S, Record
from subnet.swarm.serve import BlobService
from subnet.swarm.store import BlobStore
from subnet.swarm.traffic import Traffic
from subnet.swarm.wire import Dialer, Stream, WireError
from subnet.waiting import end

log = logging.getLogger(__name__)

_HELLO_SECONDS = 3.0
_DIALS = 16
"""At once, of a peer that nobody can dial."""
_PORT_FILE = "swarm.port"

Handler = Callable[[StreamInfo, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Metagraph(Protocol):
    """What is read of the chain's metagraph."""

    @property
    def rows(self) -> Iterable[MetagraphRow]: ...


class Swarm:
    """A running peer; see `start`.

    `peer_id` and `maddrs` (with peer id; none if nobody can dial it) are what others reach it by, `store` holds the
    blobs it offers, `traffic` counts payload bytes by hotkey.
    """

    def __init__(
        self, config: NodeConfig, signer: Signer, run: RunConfig, block: Callable[[], float], verify: Verify
    ) -> None:
        self.hotkey = signer.ss58
        self._reachable = config.reachable
        self.run = run
        self.run_id = run_id(run)
        self.traffic = Traffic()
        self.store = BlobStore()
        self._claim = HomeClaim(config.home)
        try:
            identity = config.home / "identity.key"
            self.peer_id = load_identity(identity)
            gate = RecordGate(self.run_id, verify)
            listen, announce = [_listen_address(config)], _announced(config)
            dht = DhtProcess(gate, self._claim, identity, self.peer_id, listen, announce)
        except BaseException:
            self._claim.release()
            raise
        self._binding = sign_binding(signer, self.peer_id, self.run_id, int(block()))
        self._control = DhtControl(dht)
        self._bulletin = Bulletin(self._control, gate, signer)
        self._book = PeerBook(self.run_id, verify, self.hotkey)
        vouched, word = self._book.vouched, self._bulletin.own
        self._service = BlobService(self.store, self.run_id, verify, block, self.traffic, vouched, word)
        self._client = BlobClient(self._dial, self.hotkey, self._binding.pack, self.traffic)
        self._streams: set[asyncio.Task[Any]] = set()
        self._p2p: P2P | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._dialer: Dialer
        self._membership: Membership
        self.maddrs: tuple[str, ...] = ()

    @classmethod
    async def start(
        cls,
        config: NodeConfig,
        signer: Signer,
        run: RunConfig,
        metagraph: Metagraph,
        block: Callable[[], float],
        *,
        bootstrap: Sequence[str] = (),
        verify: Verify = verify_sr25519,
    ) -> Swarm:
        """Start the DHT process and join through the metagraph's commitments and `bootstrap`.

        `bootstrap` are multiaddresses with peer ids. `block()` is the current block number, extrapolated. It forks:
        call it before CUDA is used.

        Raises:
            UserError: the state folder, the key or the port cannot be used, or the hotkey runs already; nothing is
                left running.
        """
        self = cls(config, signer, run, block, verify)
        try:
            control, found = await self._control.start()
            own = _own_addresses(found)
            if not config.announce:
                _keep_port(config.home, own)
            self._book.reach = frozenset(multiaddr.reach(multiaddr.to_bytes(m)) for m in own)
            self.maddrs = own if config.reachable else ()
            # The sockets are in a folder of this user's own; hivemind's default is a shared one.
            private: Any = type("PrivateP2P", (P2P,), {"_UNIX_SOCKET_PREFIX": f"/unix{self._claim.sockets}/"})
            self._p2p = await private.replicate(Multiaddr(control))
            self._dialer = Dialer(self._p2p)
            await self._offer(blobs.PROTOCOL, self._service.serve)
            greeting = Greeting(run.protocol, to_bytes(run), self._binding.pack())
            await self._offer(hello.PROTOCOL, hello.HelloService(greeting).serve)
            self._membership = Membership(
                self._bulletin,
                self._book,
                run,
                self._binding,
                self.maddrs,
                bootstrap,
                self.hello,
                lambda: self._dialer.connected(_HELLO_SECONDS),
            )
            self.meet(metagraph)
            await self.enter_round(0, {row.hotkey for row in metagraph.rows})
            await self._membership.enter()
            self._upkeep = asyncio.create_task(self._membership.keep_up())
        except BaseException:
            await self.stop()
            raise
        return self

    @property
    def peers(self) -> Mapping[str, Peer]:
        """Live peers that can be reached, by hotkey; this one is not among them."""
        return self._book.reachable()

    @property
    def rate(self) -> int:
        """What this peer can upload, kB/s; 0 if others cannot dial it."""
        return self._service.upload.rate if self._reachable else 0

    @property
    def alive(self) -> bool:
        """False once the DHT process or the libp2p daemon has ended: the neuron has to be started again."""
        return self._control.alive

    @property
    def rejected(self) -> Counter[tuple[str, str]]:
        """Refused records by (hotkey, reason)."""
        return self._bulletin.rejected

    @property
    def commitment(self) -> ChainCommitment:
        """What this peer should write on chain to be found."""
        return ChainCommitment.of(self.run.protocol, self.peer_id, self.maddrs, self.run_id)

    def meet(self, metagraph: Metagraph) -> None:
        """Take over the addresses others have committed on chain."""
        self._book.learn_chain(metagraph.rows)

    async def enter_round(self, round_index: int, registered: Iterable[str]) -> None:
        """From now on accept only these hotkeys' records and requests, and only records of rounds near this one."""
        self._service.registered = frozenset(registered)
        await self._bulletin.enter_round(round_index, self._service.registered)
        self._membership.wake.set()

    async def publish(
        self, kind: str, round_index: int, body: dict[str, Any], subkey: str = "", expires_s: float = MAX_LEASE_S / 2
    ) -> bool:
        """Sign a record and have it kept for `expires_s` seconds (see `Bulletin.publish`)."""
        return await self._bulletin.publish(kind, round_index, body, subkey, expires_s)

    async def records(self, kind: str, round_index: int) -> list[Record]:
        """Every verified record of this kind and round, by hotkey and subkey (see `Bulletin.find`)."""
        return [record for record, _ in await self._bulletin.find(kind, round_index)]

    async def word(self, hotkey: str, kind: str, round_index: int, subkey: str, timeout: float) -> Record:
        """A peer's own record, from itself, as soon as it has published it: sooner than the DHT hands it on.

        Raises:
            FetchError: the peer does not answer, or published none within `timeout` seconds.
            BadRecord: what it handed over is not that record.
        """
        if hotkey != self.hotkey:
            value = await self._client.ask_word(hotkey, kind, round_index, subkey, timeout)
        elif (own := await self._bulletin.own(kind, round_index, subkey, timeout)) is not None:
            value = own
        else:
            raise FetchError(f"this peer itself published none within {timeout:.1f} s")
        return self._bulletin.admit(value, hotkey, kind, round_index, subkey)

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
        """Leaves `[start, stop)` of a tree from the first of these hotkeys that has them (see `BlobClient`)."""
        return await self._client.fetch_leaves(sources, root, n_leaves, start, stop, sizes, timeout, owner)

    async def fetch_hashes(self, sources: Sequence[str], root: bytes, n_leaves: int, timeout: float) -> list[bytes]:
        """All leaf hashes of a tree from the first of these hotkeys that has it (see `BlobClient`)."""
        return await self._client.fetch_hashes(sources, root, n_leaves, timeout)

    async def hello(self, maddrs: Sequence[str]) -> Greeting:
        """What the peer at `maddrs` (of which the first names its id) says of itself.

        Raises:
            WireError: it cannot be reached or does not answer.
            ValueError: malformed addresses.
        """
        plain = [multiaddr.without_peer(multiaddr.to_bytes(m)) for m in maddrs]
        if not plain or plain[0][1] is None:
            raise ValueError("the first address must name a peer id (.../p2p/12D3...)")
        peer_id = multiaddr.peer_id_text(plain[0][1])
        return await hello.ask(await self._dialer.open(peer_id, [m for m, _ in plain], hello.PROTOCOL, _HELLO_SECONDS))

    async def be_reachable(self, timeout: float) -> None:
        """Where others cannot dial this peer: have a connection to every live one, which they can use as well."""
        if self._reachable:
            return
        slots = asyncio.Semaphore(_DIALS)

        async def reach(peer: Peer) -> None:
            async with slots:
                with suppress(WireError):  # it is gone, or cannot be dialled either
                    await self._dialer.connect(peer.peer_id, peer.maddrs, _HELLO_SECONDS)

        dials = [asyncio.create_task(reach(peer)) for peer in self.peers.values() if peer.maddrs]
        if dials:
            await asyncio.wait(dials, timeout=timeout)
        await end(dials)

    async def stop(self) -> None:
        """Leave the swarm; no process, socket or task is left behind."""
        self._client.lines.close()
        await end([*self._streams, *([self._upkeep] if self._upkeep else [])])
        if self._p2p is not None:
            await self._p2p.shutdown()
        await self._control.stop()
        await asyncio.to_thread(self._claim.release)

    async def _offer(self, protocol: str, handler: Handler) -> None:
        """Answer streams of `protocol`, as tasks that `stop` knows."""
        assert self._p2p is not None

        async def tracked(info: StreamInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._streams.add(task)
            try:
                await handler(info, reader, writer)
            finally:
                self._streams.discard(task)

        await self._p2p.add_binary_stream_handler(protocol, tracked)

    async def _dial(self, hotkey: str, protocol: str, seconds: float) -> Stream:
        peer = self._book.find(hotkey)
        if peer is None:
            raise WireError("is not in the swarm")
        try:
            stream = await self._dialer.open(peer.peer_id, peer.maddrs, protocol, seconds)
        except WireError:
            # It may have started again elsewhere, and said so.
            self._book.mark_down(hotkey)
            self._membership.wake.set()
            raise
        self._book.mark_up(hotkey)
        return stream


def _listen_address(config: NodeConfig) -> str:
    """Where to listen. Without a port in the configuration, where it was last time: others remember that address."""
    port = config.port
    if port == 0:
        with suppress(OSError, ValueError, OverflowError):
            last = int((config.home / _PORT_FILE).read_text())
            _try_port(config.host, last)
            port = last
    try:
        _try_port(config.host, port)
        text = f"/{'ip6' if ':' in config.host else 'ip4'}/{config.host}/tcp/{port}"
        multiaddr.to_bytes(text)
    except (OSError, ValueError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"the swarm cannot listen on {config.host} port {port}: {reason}; choose another") from error
    return text


def _announced(config: NodeConfig) -> tuple[str, ...]:
    for text in config.announce:
        try:
            multiaddr.to_bytes(text)
        except ValueError as error:
            raise UserError(f"{error}; announce an address like /ip4/203.0.113.7/tcp/4001") from error
    return config.announce


def _try_port(host: str, port: int) -> None:
    """Raises OSError for a port in use, before the daemon is started: its own word on it is less clear."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def _keep_port(home: Path, maddrs: Iterable[str]) -> None:
    for address in maddrs:
        (home / _PORT_FILE).write_text(str(multiaddr.port(multiaddr.to_bytes(address))))
        return


def _own_addresses(found: Iterable[str]) -> tuple[str, ...]:
    """Of the addresses libp2p reports, those others can use: loopback ones only if there is nothing else."""
    usable = [text for text in found if _is_known(text)]
    return tuple(m for m in usable if multiaddr.reach(multiaddr.to_bytes(m)) != "loopback") or tuple(usable)


def _is_known(text: str) -> bool:
    try:
        multiaddr.to_bytes(text)
    except ValueError:
        return False
    return True
