"""TAO: transfers as FRAME makes them, and not one rao from nowhere."""

from __future__ import annotations

from tests.localnet.conftest import Net

DEPOSIT = 500


def test_transfers_name_their_refusals(net: Net) -> None:
    bob = net.address("bob")
    assert net.do("Alice", "Balances", "transfer_allow_death", dest=bob, value=DEPOSIT - 1).error == "BelowMinimum"
    assert net.do("Alice", "Balances", "transfer_allow_death", dest=bob, value=10**16).error == "FundsUnavailable"
    net.fund("bob", tao=1)
    all_of_it = net.free("bob") - 101_480
    alice = net.address("Alice")
    assert net.do("bob", "Balances", "transfer_keep_alive", dest=alice, value=all_of_it).error == "NotExpendable"
    assert net.do("bob", "Balances", "transfer_all", dest=alice, keep_alive=True).error is None
    assert net.free("bob") == DEPOSIT


def test_a_transfer_to_oneself_changes_nothing_but_the_fee(net: Net) -> None:
    net.fund("bob", tao=3)
    before = net.free("bob")
    done = net.do("bob", "Balances", "transfer_keep_alive", dest=net.address("bob"), value=10**9)
    assert done.error is None and net.free("bob") == before - done.event("TransactionFeePaid")["actual_fee"]


def test_an_emptied_account_is_reaped_and_keeps_its_nonce(net: Net) -> None:
    net.fund("bob", tao=1)
    done = net.do("bob", "Balances", "transfer_all", dest=net.address("Alice"), keep_alive=False)
    assert done.event("KilledAccount") == {"account": net.address("bob")}
    record = net.get("Account", net.address("bob"), pallet="System")
    assert record["providers"] == 0 and record["nonce"] == 1


def test_issuance_is_the_sum_of_all_balances(net: Net) -> None:
    net.fund("bob", "carol")
    net.do("bob", "Balances", "transfer_allow_death", dest=net.address("carol"), value=net.free("bob") - 101_700)
    net.do("carol", "Balances", "burn", value=10**9, keep_alive=True)
    net.sudo("Balances", "force_set_balance", who=net.address("dave"), new_free=10**12)
    accounts = net.chain.ledger.pallet("System").items("Account")
    total = sum(record["data"]["free"] for _, record in accounts)
    assert total == net.get("TotalIssuance", pallet="Balances") == net.get("TotalIssuance")
