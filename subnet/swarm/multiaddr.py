"""Multiaddresses between text and bytes, for the few forms by which one of our peers can be dialled.

Not a general multiaddr library: whatever is not host/transport[/p2p[/p2p-circuit]] is refused, which makes parsing the
schema check for addresses from strangers. Codes are those of https://github.com/multiformats/multiaddr.
"""

from __future__ import annotations

import ipaddress
import re

import base58

MAX_BYTES = 192
"""Longest binary multiaddress accepted: a relayed one with two peer ids and a long host name fits."""

_NAMES = {
    4: "ip4", 6: "tcp", 41: "ip6", 53: "dns", 54: "dns4", 55: "dns6",
    273: "udp", 290: "p2p-circuit", 421: "p2p", 461: "quic-v1",
}  # fmt: skip
_CODES = {name: code for code, name in _NAMES.items()}
_SIZES = {"ip4": 4, "tcp": 2, "ip6": 16, "udp": 2, "p2p-circuit": 0, "quic-v1": 0}
_SHAPE = re.compile(r"(ip4|ip6|dns|dns4|dns6) (tcp|udp quic-v1)( p2p( p2p-circuit( p2p)?)?)?")
_HOST = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_ED25519_ID = b"\x00\x24\x08\x01\x12\x20"
_SHA256_ID = b"\x12\x20"

Parts = list[tuple[str, bytes]]


def to_bytes(text: str) -> bytes:
    """Binary form of "/ip4/1.2.3.4/tcp/4001[/p2p/12D3...]" and the like. Raises ValueError."""
    words = text.split("/")
    if len(text) > 2 * MAX_BYTES or words[0] != "":
        raise ValueError(f"not a multiaddress: {text[:80]!r}")
    parts: Parts = []
    rest = iter(words[1:])
    for name in rest:
        if name not in _CODES:
            raise ValueError(f"{text[:80]!r}: protocol {name[:20]!r} is not supported")
        empty = _SIZES.get(name) == 0
        value = "" if empty else next(rest, "")
        try:
            parts.append((name, b"" if empty else _value_to_bytes(name, value)))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{text[:80]!r}: bad {name} value {value[:64]!r}") from error
    return join(parts)


def to_text(data: bytes) -> str:
    """Inverse of `to_bytes`. Raises ValueError unless `data` is exactly one well-formed, canonical address."""
    return "".join(f"/{name}" + _value_to_text(name, value) for name, value in split(data))


def split(data: bytes) -> Parts:
    """The (protocol name, value) pairs of a binary address, checked. Raises ValueError."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"a multiaddress of {len(data)} bytes is too long")
    parts: Parts = []
    at = 0
    while at < len(data):
        code, at = _varint(data, at)
        name = _NAMES.get(code)
        if name is None:
            raise ValueError(f"multiaddress protocol {code} is not supported")
        size, at = (_SIZES[name], at) if name in _SIZES else _varint(data, at)
        if at + size > len(data):
            raise ValueError("a multiaddress ends in the middle of a value")
        value = data[at : at + size]
        if name == "p2p":
            check_peer_id(value)
        elif name.startswith("dns") and not _HOST.fullmatch(value.decode("ascii", "replace")):
            raise ValueError("a multiaddress with a malformed host name")
        parts.append((name, value))
        at += size
    _check_shape(parts)
    return parts


def join(parts: Parts) -> bytes:
    """Binary address of (protocol name, value) pairs. Raises ValueError for a form that cannot be dialled."""
    _check_shape(parts)
    data = b"".join(
        _to_varint(_CODES[name]) + (b"" if name in _SIZES else _to_varint(len(value))) + value for name, value in parts
    )
    if len(data) > MAX_BYTES:
        raise ValueError(f"a multiaddress of {len(data)} bytes is too long")
    return data


def without_peer(data: bytes) -> tuple[bytes, bytes | None]:
    """A binary address without its trailing peer id, and that peer id (None if it names none).

    Raises ValueError for a malformed address.
    """
    parts = split(data)
    if parts[-1][0] == "p2p":
        return join(parts[:-1]), parts[-1][1]
    return data, None


def reach(data: bytes) -> str:
    """How far a binary address carries: "loopback", "private" or "public"; a host name counts as public."""
    name, value = split(data)[0]
    if name not in ("ip4", "ip6"):
        return "public"
    address = ipaddress.ip_address(value)
    if address.is_loopback or address.is_unspecified:
        return "loopback"
    return "public" if address.is_global else "private"


def port(data: bytes) -> int:
    """The TCP or UDP port of a binary address."""
    return int.from_bytes(split(data)[1][1], "big")


def check_peer_id(value: bytes) -> None:
    """Raises ValueError unless `value` is a libp2p peer id: an inlined ed25519 key or a sha2-256 hash of a key."""
    if not (
        (len(value) == 38 and value.startswith(_ED25519_ID)) or (len(value) == 34 and value.startswith(_SHA256_ID))
    ):
        raise ValueError("malformed libp2p peer id")


def peer_id_text(value: bytes) -> str:
    """Base58 form of a peer id."""
    return base58.b58encode(value).decode()


def _check_shape(parts: Parts) -> None:
    shape = " ".join(name for name, _ in parts)
    if not _SHAPE.fullmatch(shape):
        raise ValueError(f"a multiaddress of the form '{shape}' cannot be dialled")


def _value_to_bytes(name: str, value: str) -> bytes:
    if name in ("ip4", "ip6"):
        version: type[ipaddress.IPv4Address | ipaddress.IPv6Address]
        version = ipaddress.IPv4Address if name == "ip4" else ipaddress.IPv6Address
        if "%" in value:
            raise ValueError("zone")
        return version(value).packed
    if name in ("tcp", "udp"):
        if not re.fullmatch(r"[0-9]{1,5}", value):
            raise ValueError("port")
        return int(value).to_bytes(2, "big")
    if name == "p2p":
        raw = base58.b58decode(value) if len(value) <= 64 else b""
        check_peer_id(raw)
        return raw
    if not _HOST.fullmatch(value):
        raise ValueError("host name")
    return value.encode("ascii")


def _value_to_text(name: str, value: bytes) -> str:
    if name in ("ip4", "ip6"):
        return f"/{ipaddress.ip_address(value)}"
    if name in ("tcp", "udp"):
        return f"/{int.from_bytes(value, 'big')}"
    if name == "p2p":
        return f"/{base58.b58encode(value).decode()}"
    return f"/{value.decode('ascii')}" if value else ""


def _to_varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    # Two bytes carry every code and length of the table; the minimal form is the only one accepted.
    low = data[at] if at < len(data) else 0x80
    if low < 0x80:
        return low, at + 1
    if at + 1 >= len(data) or not 0 < data[at + 1] < 0x80:
        raise ValueError("malformed number in a multiaddress")
    return (low & 0x7F) | data[at + 1] << 7, at + 2
