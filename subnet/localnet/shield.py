"""MEV shield: the key clients encrypt extrinsics to, and the decryption of what they send.

The SDK sends registrations only this way, so a chain without it cannot be registered on. The key is derived from a
public constant: it hides nothing on a development chain. Wire format of Subtensor's shield pallet: key hash (16) |
length of the KEM ciphertext (u16) | ML-KEM-768 ciphertext | nonce (24) | XChaCha20-Poly1305 ciphertext under the
shared secret.
"""

from __future__ import annotations

import struct
from functools import cache
from hashlib import blake2b
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

KEY_HASH_BYTES = 16
NONCE_BYTES = 24

_WORDS = struct.Struct("<16I")
_SIGMA = struct.unpack("<4I", b"expand 32-byte k")


@cache
def _key() -> MLKEM768PrivateKey:
    return MLKEM768PrivateKey.from_seed_bytes(blake2b(b"sn38 localnet shield", digest_size=64).digest())


def public_key() -> bytes:
    """1184 bytes, for MevShield.NextKey."""
    return _key().public_key().public_bytes_raw()


def sealed_in(call: dict[str, Any]) -> bytes | None:
    """The ciphertext a decoded call carries, if it is a carrier."""
    if (call["call_module"], call["call_function"]) != ("MevShield", "submit_encrypted"):
        return None
    text = call["call_args"][0]["value"]
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def unseal(ciphertext: bytes) -> bytes | None:
    """The extrinsic inside, or None when the ciphertext is malformed or for another key."""
    at = KEY_HASH_BYTES + 2
    if len(ciphertext) < at:
        return None
    length = int.from_bytes(ciphertext[KEY_HASH_BYTES:at], "little")
    encapsulated, nonce = ciphertext[at : at + length], ciphertext[at + length : at + length + NONCE_BYTES]
    sealed = ciphertext[at + length + NONCE_BYTES :]
    try:
        secret = _key().decapsulate(encapsulated)
        return ChaCha20Poly1305(hchacha20(secret, nonce[:16])).decrypt(bytes(4) + nonce[16:], sealed, None)
    except (ValueError, InvalidTag):
        return None


def hchacha20(key: bytes, nonce: bytes) -> bytes:
    """The subkey of XChaCha20 (draft-irtf-cfrg-xchacha): 32 bytes from a 32-byte key and a 16-byte nonce.

    ChaCha20's first block is its permuted state plus its initial state; taking the initial state off leaves what
    HChaCha20 outputs.
    """
    stream = Cipher(ChaCha20(key, nonce), mode=None).encryptor().update(bytes(64))
    initial = _SIGMA + struct.unpack("<8I", key) + struct.unpack("<4I", nonce)
    permuted = [(word - start) & 0xFFFFFFFF for word, start in zip(_WORDS.unpack(stream), initial, strict=True)]
    return struct.pack("<8I", *permuted[:4], *permuted[12:])
