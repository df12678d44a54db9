"""Small hotkey-signed statements, and the signed lease under which the DHT keeps one.

A record is a statement that is the same bytes wherever it is shown (a roster quotes them). The lease says until when
replicas keep it: whoever re-stores somebody's old record with a later expiry is refused, so the latest lease wins.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import msgpack

from subnet.swarm.identity import SIGNATURE_BYTES, Signer, Verify, is_ss58

MAX_RECORD_BYTES = 2048
"""Largest record; hivemind's DHT process dies of values of ten kilobytes."""
LEASE_BYTES = 8 + SIGNATURE_BYTES
MAX_LEASE_S = 600.0
"""Longest time a record may be kept without being published again, in seconds."""
MAX_SLOTS = 4096
MAX_ROUND = 2**48

KINDS = ("peer", "commit", "roster", "part", "digest")
_SLOTTED = ("part",)
_SLOT = re.compile(r"0|[1-9][0-9]{0,3}")
_RECORD_DOMAIN = b"sn38/record/1\0"
_LEASE_DOMAIN = b"sn38/lease/1\0"


class BadRecord(ValueError):
    """A record, or what it says, breaks a rule; the message is a short fixed reason fit for counting."""


@dataclass(frozen=True)
class Record:
    """A statement by `hotkey` in one round of one run.

    `subkey` tells several records of one kind, round and hotkey apart: the part index for kind "part", else "".
    `body` is plain msgpack data with string keys; its meaning is for the layer above.
    """

    kind: str
    run_id: bytes
    round: int
    hotkey: str
    body: dict[str, Any]
    signature: bytes
    subkey: str = ""

    def pack(self) -> bytes:
        """Wire form: the signed statement and the signature; at most `MAX_RECORD_BYTES`."""
        return _statement(self.kind, self.run_id, self.round, self.subkey, self.hotkey, self.body) + self.signature


def sign_record(signer: Signer, kind: str, run_id: bytes, round: int, body: dict[str, Any], subkey: str = "") -> Record:
    """Make a record. Raises BadRecord when its fields are out of range or it is larger than the DHT can carry."""
    statement = _statement(kind, run_id, round, subkey, signer.ss58, body)
    _check_fields(kind, run_id, round, subkey, signer.ss58, body)
    if len(statement) + SIGNATURE_BYTES > MAX_RECORD_BYTES:
        raise BadRecord(f"a {kind} record of {len(statement) + SIGNATURE_BYTES} bytes is over {MAX_RECORD_BYTES}")
    return Record(kind, run_id, round, signer.ss58, body, signer.sign(_RECORD_DOMAIN + statement), subkey)


def open_record(data: bytes, *, run_id: bytes, verify: Verify) -> Record:
    """Read a record from a stranger: size, encoding, fields, run and signature.

    Whether the hotkey is registered and the round is current is for the caller.

    Raises:
        BadRecord: anything at all is wrong with it.
    """
    record = parse_record(data, run_id=run_id)
    if not verify(record.hotkey, _RECORD_DOMAIN + data[:-SIGNATURE_BYTES], record.signature):
        raise BadRecord("signature")
    return record


def parse_record(data: bytes, *, run_id: bytes) -> Record:
    """`open_record` without the signature: for what costs less than verifying one. Raises BadRecord."""
    if not SIGNATURE_BYTES < len(data) <= MAX_RECORD_BYTES:
        raise BadRecord("size")
    statement, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    try:
        fields = msgpack.unpackb(
            statement, raw=False, strict_map_key=True, max_array_len=512, max_map_len=64, max_ext_len=0
        )
        canonical = msgpack.packb(fields, use_bin_type=True) == statement
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadRecord("encoding") from error
    if not canonical or not isinstance(fields, list) or len(fields) != 6:
        raise BadRecord("encoding")
    kind, run, round_, subkey, hotkey, body = fields
    _check_fields(kind, run, round_, subkey, hotkey, body)
    if run != run_id:
        raise BadRecord("another run")
    return Record(kind, run, round_, hotkey, body, signature, subkey)


def record_key(run_id: bytes, kind: str, round: int) -> str:
    """The DHT key under which everybody's records of one kind and round are."""
    return f"sn38/{run_id.hex()[:32]}/{kind}/{round}"


def dht_subkey(hotkey: str, subkey: str) -> str:
    """Under that key, where the hotkey's record with this subkey is."""
    return f"{hotkey}:{subkey}" if subkey else hotkey


def seal(signer: Signer, record: Record, expires: float) -> bytes:
    """The value stored in the DHT: the record, and its author's word to keep it until `expires` (Unix seconds)."""
    data = record.pack()
    until = struct.pack(">d", expires)
    return data + until + signer.sign(_LEASE_DOMAIN + until + data)


def unseal(value: bytes) -> tuple[bytes, float]:
    """Cut a DHT value into record bytes and expiry (Unix seconds), neither verified yet. Raises BadRecord."""
    if not LEASE_BYTES < len(value) <= MAX_RECORD_BYTES + LEASE_BYTES:
        raise BadRecord("size")
    (expires,) = struct.unpack(">d", value[-LEASE_BYTES:-SIGNATURE_BYTES])
    if not math.isfinite(expires):
        raise BadRecord("expiry")
    return value[:-LEASE_BYTES], expires


def lease_signed(value: bytes, hotkey: str, verify: Verify) -> bool:
    """Whether `hotkey` signed the lease of a DHT value that `unseal` could cut."""
    until = value[-LEASE_BYTES:-SIGNATURE_BYTES]
    return verify(hotkey, _LEASE_DOMAIN + until + value[:-LEASE_BYTES], value[-SIGNATURE_BYTES:])


def _check_fields(kind: object, run: object, round_: object, subkey: object, hotkey: object, body: object) -> None:
    if kind not in KINDS:
        raise BadRecord("kind")
    if not (isinstance(run, bytes) and len(run) == 32 and is_ss58(hotkey) and isinstance(body, dict)):
        raise BadRecord("fields")
    if type(round_) is not int or not 0 <= round_ < MAX_ROUND:
        raise BadRecord("round")
    if not isinstance(subkey, str) or not all(isinstance(key, str) for key in body):
        raise BadRecord("fields")
    is_slot = _SLOT.fullmatch(subkey) is not None and int(subkey) < MAX_SLOTS
    if not (is_slot if kind in _SLOTTED else subkey == ""):
        raise BadRecord("subkey")


def _statement(kind: str, run_id: bytes, round: int, subkey: str, hotkey: str, body: dict[str, Any]) -> bytes:
    try:
        return bytes(msgpack.packb([kind, run_id, round, subkey, hotkey, body], use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRecord("body that msgpack cannot carry") from error
