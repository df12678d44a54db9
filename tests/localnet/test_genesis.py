"""The first block, and what a stored chain must have in common with the program that opens it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subnet.localnet.dispatch import Rules
from subnet.localnet.errors import LocalnetError
from subnet.localnet.genesis import open_chain
from subnet.localnet.store import Store
from tests.localnet.conftest import Net, key

RULES = Rules()


def genesis(block_time: float | None = None) -> bytes:
    return open_chain(Store(None), block_time, RULES)[0].genesis


def test_the_same_chain_has_the_same_genesis_and_the_same_blocks() -> None:
    first, second = (Net(Store(None), RULES) for _ in range(2))
    call = first.compose("Balances", "transfer_allow_death", dest=first.address("bob"), value=10**9)
    signed = first.sign(key("Alice"), call)
    for net in (first, second):
        net.chain.submit(signed)
        net.produce(3)
    assert first.chain.genesis == second.chain.genesis and first.chain.head == second.chain.head


def test_chains_of_another_block_time_have_another_genesis() -> None:
    """The SDK keeps metadata, and with it the block time, by genesis hash."""
    assert genesis() == genesis(0.25) != genesis(0.5)


def test_alice_has_the_tao_and_the_key(net: Net) -> None:
    assert net.free("Alice") == 1_000_000 * 10**9
    assert net.get("Key", pallet="Sudo") == net.address("Alice")
    assert [net.get("NetworksAdded", netuid) for netuid in range(3)] == [True, True, False]
    assert net.get("SubnetTAO", 1) == 10 * 10**9 and net.get("SubnetworkN", 1) == 1


def test_a_stored_chain_keeps_its_block_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    chain, _ = open_chain(store, 0.5, RULES)
    chain.produce(1)
    store.close()
    store = Store(tmp_path)
    again, block_time = open_chain(store, None, RULES)
    assert block_time == 0.5 and again.genesis == chain.genesis and again.head == chain.head
    assert again.state.root == chain.state.root
    with pytest.raises(LocalnetError, match=r"block time of 0.5 s, not 0.25 s; pass --block-time 0.5"):
        open_chain(store, 0.25, RULES)
    store.close()


def test_a_chain_of_another_version_is_refused_not_rewritten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    open_chain(store, None, RULES)
    identity = json.loads(store.meta("chain") or b"")
    store._db.execute("UPDATE meta SET value = ?", (json.dumps({**identity, "metadata": "other"}).encode(),))
    with pytest.raises(LocalnetError, match="made by another version"):
        open_chain(store, None, RULES)
    store.close()


def test_a_state_that_does_not_match_its_root_is_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    open_chain(store, None, RULES)
    store._db.execute("UPDATE state SET value = x'00' WHERE key = (SELECT MIN(key) FROM state)")
    with pytest.raises(LocalnetError, match=r"damaged \(the state does not match its root\)"):
        open_chain(store, None, RULES)
    store.close()
