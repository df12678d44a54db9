"""Signed extrinsics: the envelope's parser and the checks every one must pass before it may touch the state.

Not dispatch (dispatch.py) and not queueing (mempool.py). Layout and rules are Substrate's extrinsic format 4 with
the Subtensor's signed extensions; a refusal carries the text and code a Substrate node answers with, which is what
the SDK knows by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from bittensor_core import Runtime, metadata_digest, ss58_encode, verify_signature

MAX_BYTES = 1024 * 1024
MAX_AHEAD = 64
"""Nonces an account may be ahead of its next one; beyond, an extrinsic is refused rather than kept waiting."""

SIGNED_V4 = 0x84
SIGNATURE_BYTES = {0: 64, 1: 64}
"""MultiSignature variant to length: 0 ed25519, 1 sr25519, as `bittensor_core` numbers them too."""


class Invalid(Exception):
    """Why an extrinsic is refused; `message` and `code` as Substrate's author_submitExtrinsic answers."""

    def __init__(self, detail: str, code: int = 1010, message: str = "Invalid Transaction") -> None:
        super().__init__(detail)
        self.code = code
        self.message = message
        self.detail = detail


BAD_PROOF = "Transaction has a bad signature"
STALE = "Transaction is outdated"
FUTURE = "Transaction will be valid in the future"
ANCIENT = "Transaction has an ancient birth block"
PAYMENT = "Inability to pay some fees (e.g. account balance too low)"


def undecodable(reason: str) -> Invalid:
    return Invalid(f"Could not decode the extrinsic: {reason}", 1002, "Verification Error")


@dataclass(frozen=True)
class Era:
    """Mortality: valid for `period` blocks from each block whose number is `phase` modulo `period`."""

    period: int
    phase: int

    def birth(self, current: int) -> int:
        return (max(current, self.phase) - self.phase) // self.period * self.period + self.phase


@dataclass(frozen=True)
class Extrinsic:
    raw: bytes
    """As it came, with its length prefix."""
    hash: bytes
    signer: str
    crypto: int
    signature: bytes
    era: Era | None
    nonce: int
    tip: int
    metadata_hash: bool
    extra: bytes
    call_data: bytes
    call: dict[str, Any]
    """`Runtime.decode_call`'s shape."""


class Cursor:
    """Reads bytes from the front; every overrun is the sender's fault."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise undecodable("it is cut short")
        self.at += count
        return self._data[self.at - count : self.at]

    def rest(self) -> bytes:
        return self.take(len(self._data) - self.at)

    def compact(self) -> int:
        first = self.take(1)[0]
        if first & 3 == 0:
            return first >> 2
        if first & 3 == 3:
            return int.from_bytes(self.take((first >> 2) + 4), "little")
        more = self.take(1 if first & 3 == 1 else 3)
        return int.from_bytes(bytes([first]) + more, "little") >> 2


def parse(raw: bytes, runtime: Runtime) -> Extrinsic:
    """Takes the envelope apart.

    Raises:
        Invalid: 1002 when the bytes are not a signed extrinsic of this runtime.
    """
    if len(raw) > MAX_BYTES:
        raise undecodable(f"more than {MAX_BYTES} bytes")
    cursor = Cursor(raw)
    if cursor.compact() != len(raw) - cursor.at:
        raise undecodable("the length prefix is wrong")
    if cursor.take(1)[0] != SIGNED_V4:
        raise undecodable("only signed extrinsics of version 4 are accepted")
    if cursor.take(1)[0] != 0:
        raise undecodable("the signer is not an account id")
    signer = ss58_encode(cursor.take(32), runtime.ss58_format)
    crypto = cursor.take(1)[0]
    if crypto not in SIGNATURE_BYTES:
        raise undecodable("only sr25519 and ed25519 signatures are accepted")
    signature = cursor.take(SIGNATURE_BYTES[crypto])
    start = cursor.at
    era = _era(cursor)
    nonce, tip = cursor.compact(), cursor.compact()
    mode = cursor.take(1)[0]
    if mode > 1 or nonce >= 1 << 32:
        raise undecodable("the signed extensions are malformed")
    extra = raw[start : cursor.at]
    call_data = cursor.rest()
    try:
        call = runtime.decode_call(call_data)
    except (ValueError, KeyError) as error:
        raise undecodable(str(error)) from error
    digest = blake2b(raw, digest_size=32).digest()
    return Extrinsic(raw, digest, signer, crypto, signature, era, nonce, tip, mode == 1, extra, call_data, call)


def _era(cursor: Cursor) -> Era | None:
    first = cursor.take(1)[0]
    if first == 0:
        return None
    encoded = first | cursor.take(1)[0] << 8
    period = 2 << (encoded & 15)
    phase = (encoded >> 4) * max(period >> 12, 1)
    if period < 4 or phase >= period:
        raise undecodable("the era is malformed")
    return Era(period, phase)


class Checker:
    """The signature, era and genesis check, which needs no state but the hashes of earlier blocks."""

    def __init__(
        self, runtime: Runtime, metadata: bytes, spec_name: str, genesis: bytes, hash_of: Callable[[int], bytes | None]
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._spec_name = spec_name
        self._genesis = genesis
        self._hash_of = hash_of

    def check(self, extrinsic: Extrinsic, number: int) -> None:
        """Is it signed by its signer, for this chain and runtime, and alive in block `number`?

        Raises:
            Invalid: 1010, bad signature (a wrong genesis, spec version or era shows as one too) or ancient birth block.
        """
        era = extrinsic.era
        if era is None:
            anchors: list[bytes | None] = [self._genesis]
        else:
            birth = era.birth(number)
            anchors = [self._hash_of(birth), self._hash_of(birth - era.period) if birth >= era.period else None]
        if anchors[0] is None:
            raise Invalid(ANCIENT)
        if self._signed(extrinsic, anchors[0]):
            return
        # An expired era cannot be told from a forged one by its bits; that it was right a period ago tells the
        # honest sender more.
        expired = len(anchors) > 1 and anchors[1] is not None and self._signed(extrinsic, anchors[1])
        raise Invalid(ANCIENT if expired else BAD_PROOF)

    def _signed(self, extrinsic: Extrinsic, anchor: bytes) -> bool:
        era: Any = "00"
        if extrinsic.era is not None:
            era = {"period": extrinsic.era.period, "phase": extrinsic.era.phase}
        digest = None
        if extrinsic.metadata_hash:
            digest = bytes(metadata_digest(self._metadata, self._runtime.spec_version, self._spec_name))
        extra, additional = self._runtime.signature_payload_parts(
            era=era,
            nonce=extrinsic.nonce,
            tip=extrinsic.tip,
            tip_asset_id=None,
            genesis_hash=self._genesis,
            era_block_hash=anchor,
            metadata_hash=digest,
        )
        if bytes(extra) != extrinsic.extra:
            return False
        payload = extrinsic.call_data + extrinsic.extra + bytes(additional)
        if len(payload) > 256:
            payload = blake2b(payload, digest_size=32).digest()
        try:
            return verify_signature(payload, extrinsic.signature, extrinsic.signer, extrinsic.crypto)
        except ValueError:
            return False
