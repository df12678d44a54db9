"""Calls that carry calls, calls that do not exist, and calls whose code is at fault."""

from __future__ import annotations

import pytest

from subnet.localnet import dispatch
from tests.localnet.conftest import Net, key


def pay(net: Net, to: str, value: int = 10**9) -> bytes:
    return net.compose("Balances", "transfer_allow_death", dest=net.address(to), value=value)


def bad(net: Net) -> bytes:
    return pay(net, "carol", 10**17)


def names(events: list) -> list[str]:
    return [event for pallet, event, _ in events if pallet in ("Utility", "Sudo")]


def test_batch_stops_at_the_first_refusal_and_keeps_what_came_before(net: Net) -> None:
    done = net.do("Alice", "Utility", "batch", calls=[pay(net, "bob"), bad(net), pay(net, "carol")])
    assert done.error is None and names(done.events) == ["ItemCompleted", "BatchInterrupted"]
    assert done.event("BatchInterrupted")["index"] == 1
    assert (net.free("bob"), net.free("carol")) == (10**9, 0)


def test_batch_all_is_all_or_nothing(net: Net) -> None:
    done = net.do("Alice", "Utility", "batch_all", calls=[pay(net, "bob"), bad(net)])
    assert done.error == "FundsUnavailable" and names(done.events) == [] and net.free("bob") == 0
    done = net.do("Alice", "Utility", "batch_all", calls=[pay(net, "bob"), pay(net, "carol")])
    assert done.error is None and (net.free("bob"), net.free("carol")) == (10**9, 10**9)


def test_force_batch_goes_on(net: Net) -> None:
    done = net.do("Alice", "Utility", "force_batch", calls=[bad(net), pay(net, "carol")])
    assert done.error is None and names(done.events) == ["ItemFailed", "ItemCompleted", "BatchCompletedWithErrors"]
    assert net.free("carol") == 10**9


def test_a_batch_pays_unless_all_its_calls_are_free(net: Net) -> None:
    free = net.compose("SubtensorModule", "set_weights", netuid=1, dests=[], weights=[], version_key=0)
    paid = [name for _, name, _ in net.do("Alice", "Utility", "batch", calls=[free, pay(net, "bob")]).events]
    unpaid = [name for _, name, _ in net.do("Alice", "Utility", "batch", calls=[free, free]).events]
    assert "TransactionFeePaid" in paid and "TransactionFeePaid" not in unpaid


def test_only_the_sudo_key_is_root(net: Net) -> None:
    net.fund("bob")
    call = net.compose("Balances", "force_set_balance", who=net.address("bob"), new_free=10**15)
    assert net.do("bob", "Sudo", "sudo", call=call).error == "RequireSudo"
    assert net.do("bob", "Balances", "force_set_balance", who=net.address("bob"), new_free=1).error == "BadOrigin"
    assert net.sudo("Balances", "force_set_balance", who=net.address("bob"), new_free=10**15) == {"Ok": ()}
    assert net.free("bob") == 10**15
    refused = net.sudo("Balances", "transfer_allow_death", dest=net.address("bob"), value=1)
    assert refused == {"Err": "BadOrigin"}
    net.do("Alice", "Sudo", "set_key", new=net.address("bob"))
    assert net.do("Alice", "Sudo", "sudo", call=call).error == "RequireSudo"


def test_a_call_this_chain_does_not_know_is_filtered(net: Net) -> None:
    call = {"netuid": 1, "work_block": 0, "nonce": 0, "work": [], "hotkey": net.address("bob")}
    assert net.do("Alice", "SubtensorModule", "pow_register", **call).error == "CallFiltered"


def test_calls_nested_too_deep_are_refused(net: Net) -> None:
    call = pay(net, "bob")
    for _ in range(dispatch.MAX_DEPTH + 1):
        call = net.compose("Utility", "batch_all", calls=[call])
    net.chain.submit(net.sign(key("Alice"), call))
    net.produce()
    assert net.outcomes()[-1].error == "CallFiltered" and net.free("bob") == 0


def test_a_fault_in_a_call_costs_the_caller_not_the_chain(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(ctx: dispatch.Context, remark: str) -> None:
        ctx.sub.put("Tempo", 1, 77)
        ctx.emit("System", "CodeUpdated")
        raise KeyError(remark)

    monkeypatch.setitem(dispatch.CALLS, ("System", "remark"), faulty)
    done = net.do("Alice", "System", "remark", remark=b"x")
    assert done.error == "Other" and net.get("Tempo", 1) == 100
    assert "CodeUpdated" not in [name for _, name, _ in done.events]
    assert net.do("Alice", "Balances", "transfer_allow_death", dest=net.address("bob"), value=10**9).error is None


def test_a_result_that_does_not_fit_is_an_overflow(net: Net) -> None:
    refused = net.sudo("Balances", "force_set_balance", who=net.address("bob"), new_free=2**64 - 1)
    assert refused == {"Err": {"Arithmetic": "Overflow"}} and net.free("bob") == 0


def test_a_receiver_that_is_no_account_cannot_be_looked_up(net: Net) -> None:
    call = net.compose("Balances", "transfer_allow_death", dest=net.address("bob"), value=5)
    raw = call[:2] + b"\x03" + call[3:]
    net.chain.submit(net.sign(key("Alice"), raw))
    net.produce()
    assert net.outcomes()[-1].error == "CannotLookup"


def test_an_event_that_cannot_be_written_costs_the_caller_not_the_chain(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(ctx: dispatch.Context, remark: str) -> None:
        ctx.emit("Balances", "Transfer", {"from": "nobody", "to": "nowhere", "amount": -1})

    monkeypatch.setitem(dispatch.CALLS, ("System", "remark"), faulty)
    assert net.do("Alice", "System", "remark", remark=b"x").error in ("Other", "Overflow")
    net.produce()
