"""Who a peer is: its libp2p key, the hotkey's signed word on it, and how the chain says where it is.

A libp2p peer id alone means nothing here; it counts with a `Binding` signed by a registered hotkey. Formats of keys
and ids: https://github.com/libp2p/specs/blob/master/peer-ids/peer-ids.md.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import base58
import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from subnet.errors import UserError
from subnet.swarm import multiaddr

Verify = Callable[[str, bytes, bytes], bool]
"""`verify(ss58, message, signature)`: whether that hotkey signed that message. Total: False for malformed input."""

SIGNATURE_BYTES = 64
MAX_BLOCK = 2**48

_BINDING_DOMAIN = b"sn38/binding/1\0"
_MAX_BINDING_BYTES = 256
_SS58 = re.compile(r"[1-9A-HJ-NP-Za-km-z]{46,50}")
_PRIVATE_KEY = b"\x08\x01\x12\x40"  # protobuf of libp2p's PrivateKey: type ed25519, 64 bytes of data
_ED25519_ID = b"\x00\x24\x08\x01\x12\x20"  # identity multihash of the protobuf of an ed25519 PublicKey

_COMMITMENT_MAGIC = b"sn38"
_COMMITMENT_HEAD = len(_COMMITMENT_MAGIC) + 1 + 8 + 32
MAX_COMMITMENT_BYTES = 128
"""What the chain stores per hotkey."""


class Signer(Protocol):
    """A hotkey that can sign; see `subnet.chain.keys`."""

    @property
    def ss58(self) -> str:
        """The hotkey's address."""

    def sign(self, message: bytes) -> bytes:
        """Its 64-byte signature of `message`."""


class BadBinding(ValueError):
    """A binding that proves nothing; the message is the reason."""


@dataclass(frozen=True)
class Binding:
    """A hotkey's signed statement that `peer_id` speaks for it in one run, made at `issued_block`."""

    hotkey: str
    peer_id: str
    run_id: bytes
    issued_block: int
    signature: bytes

    def pack(self) -> bytes:
        """Wire form, at most 256 bytes."""
        return self._statement() + self.signature

    def _statement(self) -> bytes:
        raw = base58.b58decode(self.peer_id)
        return bytes(msgpack.packb([self.hotkey, raw, self.run_id, self.issued_block], use_bin_type=True))


@dataclass(frozen=True)
class ChainCommitment:
    """What a hotkey writes on chain so that others can find it: protocol, run, peer id and public addresses."""

    protocol: int
    peer_id: str
    maddrs: tuple[str, ...]
    run_id_prefix: bytes

    @classmethod
    def of(cls, protocol: int, peer_id: str, maddrs: Iterable[str], run_id: bytes) -> ChainCommitment:
        """A commitment with the first of `maddrs` (without peer ids, no duplicates) that fit into 128 bytes."""
        room = MAX_COMMITMENT_BYTES - _COMMITMENT_HEAD
        kept: list[str] = []
        for text in maddrs:
            data, _ = multiaddr.without_peer(multiaddr.to_bytes(text))
            plain = multiaddr.to_text(data)
            if len(data) < room and plain not in kept:
                kept.append(plain)
                room -= 1 + len(data)
        return cls(protocol, peer_id, tuple(kept), run_id[:8])

    def pack(self) -> bytes:
        """At most 128 bytes. Raises ValueError for a field out of range or more than fits."""
        key = _public_key_of(self.peer_id)
        if not 1 <= self.protocol <= 255 or len(self.run_id_prefix) != 8:
            raise ValueError("a commitment needs a protocol of 1 to 255 and 8 bytes of run id")
        data = bytearray(_COMMITMENT_MAGIC + bytes([self.protocol]) + self.run_id_prefix + key)
        for text in self.maddrs:
            address = multiaddr.to_bytes(text)
            data += bytes([len(address)]) + address
        if len(data) > MAX_COMMITMENT_BYTES:
            raise ValueError(f"a commitment of {len(data)} bytes does not fit on chain ({MAX_COMMITMENT_BYTES})")
        return bytes(data)

    @classmethod
    def unpack(cls, data: bytes) -> ChainCommitment:
        """Inverse of `pack`, for bytes anybody may have written. Raises ValueError unless they are exactly one."""
        if len(data) > MAX_COMMITMENT_BYTES or len(data) < _COMMITMENT_HEAD or data[:4] != _COMMITMENT_MAGIC:
            raise ValueError("not a commitment of this subnet")
        maddrs: list[str] = []
        at = _COMMITMENT_HEAD
        while at < len(data):
            size = data[at]
            if at + 1 + size > len(data):
                raise ValueError("a commitment that ends in the middle of an address")
            maddrs.append(multiaddr.to_text(data[at + 1 : at + 1 + size]))
            at += 1 + size
        if data[4] == 0 or len(set(maddrs)) != len(maddrs):
            raise ValueError("a commitment with protocol 0 or the same address twice")
        return cls(data[4], peer_id_of(data[13:45]), tuple(maddrs), data[5:13])


def peer_id_of(public_key: bytes) -> str:
    """libp2p peer id (base58) of a 32-byte ed25519 public key."""
    return base58.b58encode(_ED25519_ID + public_key).decode()


def peer_id_bytes(peer_id: str) -> bytes:
    """The 38 bytes of an ed25519 peer id. Raises ValueError for anything else."""
    raw = base58.b58decode(peer_id) if len(peer_id) <= 64 else b""
    if len(raw) != 38 or not raw.startswith(_ED25519_ID):
        raise ValueError(f"not an ed25519 peer id: {peer_id[:64]!r}")
    return raw


def load_identity(path: Path) -> str:
    """The peer id of the libp2p key in `path`, which is created (readable by the owner only) if there is none.

    Raises:
        UserError: the file holds something else, or cannot be read or written.
    """
    try:
        if not path.exists():
            _create_key(path)
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot keep the libp2p key: {error.strerror}; use another state folder") from error
    if len(data) == 68 and data.startswith(_PRIVATE_KEY):
        seed, public = data[4:36], data[36:]
        if Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() == public:
            return peer_id_of(public)
    raise UserError(f"{path} is not a libp2p ed25519 key; remove the file to get a new peer id")


def sign_binding(signer: Signer, peer_id: str, run_id: bytes, issued_block: int) -> Binding:
    """Let the hotkey say that `peer_id` speaks for it."""
    peer_id_bytes(peer_id)
    unsigned = Binding(signer.ss58, peer_id, run_id, issued_block, b"")
    signature = signer.sign(_BINDING_DOMAIN + unsigned.pack())
    return Binding(signer.ss58, peer_id, run_id, issued_block, signature)


def open_binding(data: bytes, *, run_id: bytes, verify: Verify) -> Binding:
    """Read a binding from a stranger and check its signature.

    It does not say whether the hotkey is registered, nor whether it is `peer_id` that shows it: the caller must.

    Raises:
        BadBinding: not exactly one canonical binding, of another run, or not signed by its hotkey.
    """
    if not SIGNATURE_BYTES < len(data) <= _MAX_BINDING_BYTES:
        raise BadBinding("binding size")
    statement, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    try:
        fields = msgpack.unpackb(statement, raw=False, max_array_len=4, max_map_len=0, max_ext_len=0)
        hotkey, raw, run, block = fields
        if not (isinstance(raw, bytes) and isinstance(run, bytes) and type(block) is int and is_ss58(hotkey)):
            raise BadBinding("binding fields")
        peer_id = base58.b58encode(raw).decode()
        peer_id_bytes(peer_id)
        canonical = msgpack.packb(fields, use_bin_type=True) == statement
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadBinding("binding encoding") from error
    if not canonical or not 0 <= block < MAX_BLOCK:
        raise BadBinding("binding encoding")
    if run != run_id:
        raise BadBinding("binding of another run")
    if not verify(hotkey, _BINDING_DOMAIN + statement, signature):
        raise BadBinding("binding signature")
    return Binding(hotkey, peer_id, run, block, signature)


def is_ss58(value: object) -> bool:
    """Whether `value` has the form of a hotkey address (the checksum is `verify`'s business)."""
    return isinstance(value, str) and _SS58.fullmatch(value) is not None


def _public_key_of(peer_id: str) -> bytes:
    return peer_id_bytes(peer_id)[len(_ED25519_ID) :]


def _create_key(path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    data = _PRIVATE_KEY + key.private_bytes_raw() + key.public_key().public_bytes_raw()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # A link never replaces a key that another process made meanwhile.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
