"""Hotkeys: load one from a wallet folder, sign with it, and verify others' signatures.

Loads only the native key library, not the SDK client, so that short-lived processes start fast. Never touches a
coldkey. Keyfiles are those of `btcli` (`<path>/<wallet>/hotkeys/<hotkey>`); signatures are sr25519, ss58 prefix 42.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import bittensor_core as core

from subnet.errors import UserError

DEFAULT_WALLET_PATH = "~/.bittensor/wallets"
SIGNATURE_BYTES = 64


class Signer(Protocol):
    """Anything that signs for one account."""

    @property
    def ss58(self) -> str:
        """The account's address, ss58 prefix 42."""

    def sign(self, message: bytes) -> bytes:
        """A 64-byte sr25519 signature of `message`."""


class Hotkey:
    """An unlocked sr25519 key. Its secret stays in the native library and is neither printed nor pickled."""

    def __init__(self, keypair: core.Keypair) -> None:
        self.keypair = keypair
        """The SDK's own key object, which its client accepts wherever it wants a wallet."""

    @property
    def ss58(self) -> str:
        return str(self.keypair.ss58_address)

    def sign(self, message: bytes) -> bytes:
        return bytes(self.keypair.sign(message))

    def __repr__(self) -> str:
        return f"Hotkey({self.ss58})"


def verify(ss58: str, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is the sr25519 signature of `message` by the account `ss58`.

    False, never an exception, for anything malformed, and for an address in another ss58 format than prefix 42:
    one account must not appear under two names.
    """
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        keypair = core.Keypair(ss58_address=ss58)
        return bool(keypair.ss58_address == ss58 and keypair.verify(message, signature))
    except (ValueError, TypeError):
        return False


def load_hotkey(name: str, hotkey: str, path: str = DEFAULT_WALLET_PATH) -> Hotkey:
    """Load hotkey `hotkey` of wallet `name` under the wallets folder `path`.

    An encrypted hotkey is unlocked with BT_WALLET_PASSWORD, or by asking on the terminal.

    Raises UserError if the wallet or the hotkey is missing, unreadable, encrypted without a password, or not sr25519.
    """
    folder = Path(path).expanduser()
    where = "" if path == DEFAULT_WALLET_PATH else f" --wallet-path {folder}"
    if "/" in name or "/" in hotkey:
        raise UserError(f"wallet and hotkey are names, not paths: got {name!r} and {hotkey!r}; see --wallet.path")
    if not (folder / name).is_dir():
        known = _names(folder.iterdir()) if folder.is_dir() else "none"
        raise UserError(
            f"no wallet {name!r} under {folder} (there: {known}): "
            f"create it with `btcli wallet create -w {name} -H {hotkey}{where}`"
        )
    file = folder / name / "hotkeys" / hotkey
    if not file.is_file():
        siblings = file.parent.iterdir() if file.parent.is_dir() else ()
        known = _names(p for p in siblings if not p.name.endswith("pub.txt"))
        raise UserError(
            f"wallet {name!r} has no hotkey {hotkey!r} under {folder} (there: {known}): "
            f"create it with `btcli wallet new-hotkey -w {name} -H {hotkey}{where}`"
        )
    try:
        keypair = _read_keyfile(file)
    except (OSError, ValueError, core.KeyfileError) as error:
        raise UserError(f"cannot read the hotkey {file}: {error}") from None
    if keypair.crypto_type != core.CRYPTO_SR25519:
        raise UserError(f"the hotkey {file} is not an sr25519 key, the only kind this network signs with: use another")
    return Hotkey(keypair)


def hotkey_from_uri(uri: str) -> Hotkey:
    """A development key such as `//Alice`, or any secret URI or seed (`0x` and 64 hex digits).

    Raises ValueError if `uri` is neither.
    """
    return Hotkey(core.Keypair.create_from_uri(uri))


def _names(files: Iterable[Path]) -> str:
    return ", ".join(sorted(file.name for file in files)) or "none"


def _read_keyfile(file: Path) -> core.Keypair:
    data = file.read_bytes()
    if not core.keyfile_data_is_encrypted(data):
        return core.deserialize_keypair_from_keyfile_data(data)
    # The SDK's reader knows the password variables and how to ask; it costs its import, so only for encrypted keys.
    from bittensor.keyfiles import Keyfile

    return Keyfile(file).get_keypair(os.environ.get("BT_WALLET_PASSWORD"))
