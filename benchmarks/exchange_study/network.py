"""A network namespace for every peer: wires to a switch that cost nothing, or links with a rate and a way to go.

Links are TAP devices whose frames a process of this program passes on, late and one after the other as a link of that
rate would: many kernels lack netem. Segmentation is left to the last one, as in virtual machines, so that one process
keeps up with some hundred Mbit/s.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import select
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netns import inside, ip

NET = "10.39.0"
WIRE = "wire"
HEADER_BYTES = 14 + 20 + 32
"""Ethernet, IPv4 and TCP (with time stamps) in front of what is in the sockets, once a packet."""
QUEUE_SECONDS = 0.1
"""What a link's buffer holds, in seconds at its rate, as home routers' do; beyond that frames are dropped."""
_TUNSETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x2, 0x1000, 0x4000
_CHECKSUM_AND_TSO = 0x1 | 0x2 | 0x4
_VNET_HEADER = 10
_MAX_FRAME = 2**17


@dataclass(frozen=True)
class Link:
    """`rate` in bits per second each way, `delay` in seconds one way from peer to peer.

    What the first peer sends goes through `slow` times slower.
    """

    rate: float
    delay: float
    slow: float = 1.0


@dataclass(frozen=True)
class Count:
    """Bytes a peer has put into sockets (`up`) and got out of them (`down`) so far, as its wire saw them."""

    up: int
    down: int

    def __sub__(self, other: Count) -> Count:
        return Count(self.up - other.up, self.down - other.down)


class Network:
    """`peers` namespaces, each with one interface; must be made as root of a user and network namespace of its own."""

    def __init__(self, peers: int, link: Link | None) -> None:
        self.peers = peers
        self._relay = 0
        if link is None:
            ip("link add switch type bridge")
            ip("link set switch up")
        taps = [self._attach(i, link) for i in range(peers)]
        if link is not None:
            self._relay = os.fork()
            if self._relay == 0:
                with contextlib.suppress(KeyboardInterrupt):
                    relay([tap for tap in taps if tap is not None], link)
                os._exit(0)
            for tap in taps:
                os.close(tap or 0)

    def address(self, peer: int) -> str:
        return f"{NET}.{peer + 1}"

    def inside(self, peer: int) -> contextlib.AbstractContextManager[None]:
        """Children started meanwhile live in the peer's namespace."""
        return inside(f"p{peer}")

    def close(self) -> None:
        """Take it all down; the peers must have ended."""
        if self._relay:
            os.kill(self._relay, signal.SIGKILL)
            os.waitpid(self._relay, 0)
        else:
            ip("link del switch")
        for peer in range(self.peers):
            if not self._relay:
                ip(f"link del s{peer}")
            ip(f"netns del p{peer}")

    def _attach(self, peer: int, link: Link | None) -> int | None:
        name, tap = f"p{peer}", None
        ip(f"netns add {name}")
        ip(f"-n {name} link set lo up")
        if link is None:
            ip(f"link add s{peer} type veth peer name {WIRE} netns {name}")
            ip(f"link set s{peer} master switch up")
        else:
            tap = _tap(f"t{peer}")
            ip(f"link set t{peer} netns {name}")
            ip(f"-n {name} link set t{peer} name {WIRE} address {_mac(peer)}")
        ip(f"-n {name} address add {self.address(peer)}/24 dev {WIRE}")
        ip(f"-n {name} link set {WIRE} up")
        return tap


def count(pid: int) -> Count:
    """What has crossed the wire of the namespace that process `pid` lives in."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == WIRE:
            c = list(map(int, values.split()))
            return Count(up=c[8] - HEADER_BYTES * c[9], down=c[0] - HEADER_BYTES * c[1])
    raise LookupError(f"process {pid} has no wire")


def relay(taps: list[int], link: Link) -> None:
    """Pass frames between the taps until killed: through the sender's link, over the delay, through the receiver's."""
    owners = dict(zip(taps, range(len(taps)), strict=True))
    up, down = [Lane(link.rate) for _ in taps], [Lane(link.rate) for _ in taps]
    up[0].rate /= link.slow
    poll = select.epoll()
    for tap in taps:
        os.set_blocking(tap, False)
        poll.register(tap, select.EPOLLIN)
    events: list[tuple[float, int, int, bool, bytes]] = []
    number = 0
    while True:
        wait = max(0.0, events[0][0] - time.monotonic()) if events else -1
        for tap, _ in poll.poll(wait):
            for frame in _frames(tap):
                now = time.monotonic()
                through = up[owners[tap]].pass_at(now, wire_bytes(frame))
                if through is None:
                    continue
                target = frame[_VNET_HEADER + 5] if frame[_VNET_HEADER] == 2 else -1
                for peer in range(len(taps)) if target < 0 else [target]:
                    if peer != owners[tap] and peer < len(taps):
                        number += 1
                        heapq.heappush(events, (through + link.delay, number, peer, False, frame))
        now = time.monotonic()
        while events and events[0][0] <= now:
            when, _, peer, there, frame = heapq.heappop(events)
            if there:
                with contextlib.suppress(OSError):  # the interface is down: its peer has ended
                    os.write(taps[peer], frame)
                continue
            through = down[peer].pass_at(when, wire_bytes(frame))
            if through is not None:
                number += 1
                heapq.heappush(events, (through, number, peer, True, frame))


class Lane:
    """One direction of a link: frames go through one after the other at the rate, from a buffer with an end."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.free = 0.0

    def pass_at(self, now: float, num_bytes: int) -> float | None:
        """When a frame that comes now is through; None if it is dropped."""
        if self.free - now > QUEUE_SECONDS:
            return None
        self.free = max(self.free, now) + 8.0 * num_bytes / self.rate
        return self.free


def wire_bytes(frame: bytes) -> int:
    """Bytes of all the packets that a frame not yet cut into segments becomes."""
    size = len(frame) - _VNET_HEADER
    segment = int.from_bytes(frame[4:6], "little")
    if segment and size > HEADER_BYTES:
        size += (-(-(size - HEADER_BYTES) // segment) - 1) * HEADER_BYTES
    return size


def _frames(tap: int) -> Iterator[bytes]:
    """What is there to read, but not for ever."""
    for _ in range(64):
        try:
            yield os.read(tap, _MAX_FRAME)
        except (BlockingIOError, OSError):
            return


def _tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    fcntl.ioctl(tap, _TUNSETVNETHDRSZ, struct.pack("i", _VNET_HEADER))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _CHECKSUM_AND_TSO)
    return tap


def _mac(peer: int) -> str:
    """Its first byte says that it was made up; the last is the peer."""
    return f"02:00:00:00:00:{peer:02x}"
