"""Keys: signing, verifying whatever strangers send, and loading from btcli's wallet folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import bittensor as bt
import bittensor_core as core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.chain.keys import Hotkey, hotkey_from_uri, load_hotkey, verify
from subnet.errors import UserError

ALICE = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"


def test_sign_and_verify() -> None:
    alice, bob = hotkey_from_uri("//Alice"), hotkey_from_uri("//Bob")
    signature = alice.sign(b"message")
    assert alice.ss58 == ALICE and len(signature) == 64
    assert verify(ALICE, b"message", signature)
    assert not verify(ALICE, b"massage", signature)
    assert not verify(bob.ss58, b"message", signature)
    assert "secret" not in repr(alice).lower() and ALICE in repr(alice)


@settings(max_examples=40, deadline=None)
@given(address=st.one_of(st.just(ALICE), st.text(max_size=60)), signature=st.binary(max_size=70))
def test_verify_never_raises_on_junk(address: str, signature: bytes) -> None:
    assert verify(address, b"message", signature) is False


def test_an_account_has_one_name() -> None:
    alice = hotkey_from_uri("//Alice")
    other_format = core.ss58_encode(bytes(alice.keypair.public_key), 0)
    assert other_format != ALICE
    assert not verify(other_format, b"message", alice.sign(b"message"))


def wallet(folder: Path, **options: object) -> bt.Wallet:
    made = bt.Wallet("cold", "hot", str(folder))
    return made.create_new_hotkey(suppress=True, **options)


def test_load_hotkey(tmp_path: Path) -> None:
    made = wallet(tmp_path, use_password=False)
    loaded = load_hotkey("cold", "hot", str(tmp_path))
    assert isinstance(loaded, Hotkey) and loaded.ss58 == made.hotkey.ss58_address
    assert verify(loaded.ss58, b"x", loaded.sign(b"x"))


def test_missing_keys_name_the_command(tmp_path: Path) -> None:
    missing = r"no wallet 'cold' .*there: none.*`btcli wallet create -w cold -H hot"
    with pytest.raises(UserError, match=missing) as raised:
        load_hotkey("cold", "hot", str(tmp_path))
    assert f"--wallet-path {tmp_path}" in str(raised.value)
    wallet(tmp_path, use_password=False)
    with pytest.raises(UserError, match=r"no hotkey 'hit' .*there: hot\).*`btcli wallet new-hotkey -w cold -H hit"):
        load_hotkey("cold", "hit", str(tmp_path))
    with pytest.raises(UserError, match="names, not paths"):
        load_hotkey("../cold", "hot", str(tmp_path))


def test_unusable_keyfiles(tmp_path: Path) -> None:
    wallet(tmp_path, use_password=False)
    file = tmp_path / "cold" / "hotkeys" / "hot"
    file.write_text("not a key")
    with pytest.raises(UserError, match="cannot read the hotkey"):
        load_hotkey("cold", "hot", str(tmp_path))
    file.unlink()
    wallet(tmp_path, use_password=False, overwrite=True, crypto_type=bt.CRYPTO_ED25519)
    with pytest.raises(UserError, match="not an sr25519 key"):
        load_hotkey("cold", "hot", str(tmp_path))


@pytest.mark.slow
def test_encrypted_hotkey_takes_the_password_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = wallet(tmp_path, hotkey_password="correct horse")
    monkeypatch.setenv("BT_WALLET_PASSWORD", "correct horse")
    assert load_hotkey("cold", "hot", str(tmp_path)).ss58 == made.hotkeypub.ss58_address
    monkeypatch.setenv("BT_WALLET_PASSWORD", "wrong")
    with pytest.raises(UserError, match="cannot read the hotkey"):
        load_hotkey("cold", "hot", str(tmp_path))


def test_import_is_light() -> None:
    """The DHT's process loads this module: neither torch nor the SDK's client may come with it."""
    code = "import sys, subnet.chain.keys; print([m for m in ('torch', 'bittensor', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"
