"""Blocks: their links and times, what a failed one leaves, and shielded extrinsics."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import pytest
from bittensor_core import encrypt_mlkem768

from subnet.localnet import chain as chain_module
from subnet.localnet import epoch, shield
from subnet.localnet.chain import Header
from subnet.localnet.dispatch import Rules
from subnet.localnet.store import Store
from tests.localnet.conftest import Net, key


def test_headers_link_and_hash(net: Net) -> None:
    net.produce(3)
    for number in range(1, 4):
        block = net.chain.store.block(number)
        assert block is not None
        header = Header.of(block)
        assert header.parent == net.chain.hash_of(number - 1) and header.hash == block.hash
        assert header.encode() == block.header and header.json()["number"] == hex(number)
    assert Header.of(net.chain.head).state_root == net.chain.state.root
    assert net.get("BlockHash", 2, pallet="System") == "0x" + net.chain.hash_of(2).hex()
    assert net.chain.hash_of(99) is None


def test_time_never_goes_back(net: Net) -> None:
    net.chain.produce(5000)
    net.chain.produce(4000)
    assert net.get("Now", pallet="Timestamp") == 5001


def test_the_timestamp_is_an_extrinsic_clients_can_read(net: Net) -> None:
    net.chain.produce(123_456)
    decoded = net.codec.decode_extrinsic(net.chain.head.body[0], True)
    assert decoded["call"]["call_function"] == "set" and decoded["call"]["call_args"][0]["value"] == 123_456


def test_a_block_that_fails_leaves_the_chain_as_it_was(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    net.produce()
    head, root = net.chain.head, net.chain.state.root

    def fail(ctx: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(epoch, "block_step", fail)
        with pytest.raises(RuntimeError):
            net.produce()
    assert net.chain.head == head and net.chain.state.root == root and not net.chain.state.pending()
    net.produce()
    assert net.chain.head.number == head.number + 1


def test_a_full_block_leaves_the_rest_for_the_next(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "MAX_BLOCK_EXTRINSICS", 2)
    for _ in range(3):
        net.chain.submit(net.sign(key("Alice"), net.compose("System", "remark", remark=b"")))
    net.produce()
    assert len(net.outcomes()) == 2 and len(net.chain.mempool) == 1
    net.produce()
    assert len(net.outcomes()) == 1 and len(net.chain.mempool) == 0


def test_watchers_hear_of_the_block(net: Net) -> None:
    heard: list[object] = []
    net.chain.submit(net.sign(key("Alice"), net.compose("System", "remark", remark=b"")), heard.append)
    net.produce()
    block = "0x" + net.chain.head.hash.hex()
    assert heard == ["ready", {"inBlock": block}, {"finalized": block}]


def test_one_that_can_no_longer_pay_is_dropped(net: Net) -> None:
    net.fund("bob", tao=1)
    heard: list[object] = []
    spend = net.compose("Balances", "transfer_allow_death", dest=net.address("Alice"), value=net.free("bob") - 150_000)
    net.chain.submit(net.sign(key("bob"), spend))
    second = net.sign(key("bob"), net.compose("System", "remark", remark=b""), nonce=1)
    net.chain.submit(second, heard.append)
    net.produce()
    assert heard[-1] == "invalid" and len(net.chain.mempool) == 0


def shielded(net: Net, inner: bytes) -> None:
    sealed = bytes(encrypt_mlkem768(shield.public_key(), inner, include_key_hash=True))
    carrier = net.compose("MevShield", "submit_encrypted", ciphertext=sealed)
    net.chain.submit(net.sign(key("Alice"), carrier, nonce=0))
    net.produce()


def test_a_shielded_extrinsic_follows_its_carrier(net: Net) -> None:
    call = net.compose("Balances", "transfer_keep_alive", dest=net.address("bob"), value=10**9)
    inner = net.sign(key("Alice"), call, nonce=1)
    shielded(net, inner)
    carrier, opened = net.outcomes()
    assert carrier.event("EncryptedSubmitted")["who"] == net.address("Alice") and opened.error is None
    assert net.chain.head.body[2] == inner and net.free("bob") == 10**9


@pytest.mark.parametrize("fault", ["nonce", "noise", "forged"])
def test_what_a_carrier_holds_is_checked_like_any_other(net: Net, fault: str) -> None:
    call = net.compose("Balances", "transfer_keep_alive", dest=net.address("bob"), value=10**9)
    signer = key("mallory" if fault == "forged" else "Alice")
    inner = net.sign(signer, call, nonce=5 if fault == "nonce" else 1)
    if fault == "forged":
        inner = inner.replace(bytes(signer.public_key), bytes(key("Alice").public_key))
    shielded(net, b"noise" if fault == "noise" else inner)
    assert len(net.outcomes()) == 1 and net.free("bob") == 0


def test_a_ciphertext_for_another_key_opens_to_nothing(net: Net) -> None:
    carrier = net.compose("MevShield", "submit_encrypted", ciphertext=bytes(1200))
    net.chain.submit(net.sign(key("Alice"), carrier))
    net.produce()
    assert len(net.outcomes()) == 1


def test_the_chacha_subkey_matches_the_published_vector() -> None:
    """draft-irtf-cfrg-xchacha-03, section 2.2.1."""
    nonce = bytes.fromhex("000000090000004a0000000031415927")
    expected = "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"
    assert shield.hchacha20(bytes(range(32)), nonce).hex() == expected


def test_a_chain_goes_on_where_it_stopped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    net = Net(store, Rules(tempo=10))
    netuid = net.subnet()
    net.produce(5)
    store.close()
    store = Store(tmp_path)
    again = Net(store, Rules(tempo=10))
    assert again.chain.head == net.chain.head and again.get("SubnetOwner", netuid) == net.address("owner")
    assert again.chain.ledger_at(3).get("System", "Number") == 3
    net.clock = again.clock = 10**13
    again.produce(3)
    assert blake2b(again.chain.head.header, digest_size=32).digest() == again.chain.head.hash
    assert again.get("Number", pallet="System") == net.chain.head.number + 3
    store.close()
