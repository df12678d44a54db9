"""Runtime APIs: every one the metadata declares either answers in its declared type or says it is not there."""

from __future__ import annotations

from typing import Any

import pytest

from subnet.localnet import runtime_api
from subnet.localnet.runtime_api import BadInput, Call, NotExported, answer
from tests.localnet.conftest import Net

UNSUPPORTED = {
    "Core_initialize_block",
    "TaggedTransactionQueue_validate_transaction",
    "TransactionPaymentApi_query_fee_details",
    "TransactionPaymentApi_query_length_to_fee",
    "TransactionPaymentApi_query_weight_to_fee",
    "TransactionPaymentCallApi_query_call_fee_details",
    "TransactionPaymentCallApi_query_call_info",
    "TransactionPaymentCallApi_query_length_to_fee",
    "TransactionPaymentCallApi_query_weight_to_fee",
}
"""Declared for completeness; only nodes and wallets of other kinds ask."""


def ask(net: Net, name: str, *arguments: Any, block: int | None = None) -> Any:
    number = net.chain.head.number if block is None else block
    call = Call(net.chain.ledger_at(number), net.chain.runtime, number)
    declared = net.chain.runtime.apis[name]
    data = b"".join(
        bytes(net.codec.encode(kind, value)) for (_, kind), value in zip(declared["inputs"], arguments, strict=True)
    )
    return net.codec.decode(declared["output"], answer(call, name, data))


@pytest.fixture
def busy(net: Net) -> Net:
    """Subnet 2 with a validator that set weights, a miner that committed and served, and an epoch behind them."""
    netuid = net.subnet()
    net.register(netuid, "v", "m")
    net.stake("v", netuid, 20)
    net.next_epoch(netuid)
    net.do("v_hot", "SubtensorModule", "set_weights", netuid=netuid, dests=[2], weights=[1], version_key=0)
    net.do("m_hot", "Commitments", "set_commitment", netuid=netuid, info={"fields": [{"Raw5": b"hello"}]})
    axon = {"version": 1, "ip": 5, "port": 7, "ip_type": 4, "protocol": 4, "placeholder1": 0, "placeholder2": 0}
    net.do("m_hot", "SubtensorModule", "serve_axon", netuid=netuid, **axon)
    net.next_epoch(netuid)
    return net


ARGUMENTS: dict[str, Any] = {
    "netuid": 2, "uid": 1, "mecid": 0, "subid": 0, "metagraph_indexes": [0, 52, 73, 74], "coldkey_accounts": ["v"],
    "netuids": [2], "origin": None, "destination": None, "amount": 10**9, "tao": 10**9, "alpha": 10**9,
}  # fmt: skip


def test_every_declared_method_answers_in_its_type(busy: Net) -> None:
    for name, declared in busy.chain.runtime.apis.items():
        if name in runtime_api._RAW:
            continue
        if name in UNSUPPORTED:
            with pytest.raises(NotExported):
                answer(Call(busy.chain.ledger, busy.chain.runtime, 1), name, b"")
            continue
        arguments = [ARGUMENTS.get(argument, busy.address("v_hot")) for argument, _ in declared["inputs"]]
        arguments = [[busy.address("v")] if value == ["v"] else value for value in arguments]
        ask(busy, name, *arguments)


def test_the_metagraph_holds_what_happened(busy: Net) -> None:
    graph = ask(busy, "SubnetInfoRuntimeApi_get_metagraph", 2)
    assert graph["hotkeys"] == [busy.address(name) for name in ("owner_hot", "v_hot", "m_hot")]
    assert graph["coldkeys"] == [busy.address(name) for name in ("owner", "v", "m")]
    assert graph["incentives"] == [0, 0, 65535] and graph["dividends"] == [0, 65535, 0]
    assert graph["axons"][2]["port"] == 7 and graph["axons"][0]["port"] == 0
    assert graph["alpha_stake"][1] == busy.get("TotalHotkeyAlpha", busy.address("v_hot"), 2)
    assert graph["block"] == busy.chain.head.number and graph["num_uids"] == 3
    assert bytes(graph["name"]) == b"subnet 2" and bytes(graph["symbol"]).decode() == "β"
    assert ask(busy, "SubnetInfoRuntimeApi_get_metagraph", 50) is None


def test_a_selective_metagraph_has_only_what_was_asked(busy: Net) -> None:
    graph = ask(busy, "SubnetInfoRuntimeApi_get_selective_metagraph", 2, [0, 52, 72, 73, 999])
    filled = {name for name, value in graph.items() if value is not None}
    assert filled == {"netuid", "hotkeys", "validators", "commitments"}
    assert graph["validators"] == [0, 1]
    assert graph["commitments"] == [(busy.address("m_hot"), list(b"hello"))]


def test_an_older_block_answers_from_its_own_state(busy: Net) -> None:
    past = busy.chain.head.number
    before = ask(busy, "SubnetInfoRuntimeApi_get_metagraph", 2)
    busy.register(2, "late")
    busy.next_epoch(2)
    assert ask(busy, "SubnetInfoRuntimeApi_get_metagraph", 2, block=past) == before
    assert ask(busy, "SubnetInfoRuntimeApi_get_metagraph", 2)["num_uids"] == 4


def test_stake_by_coldkey_and_quotes(busy: Net) -> None:
    (info,) = ask(busy, "StakeInfoRuntimeApi_get_stake_info_for_coldkey", busy.address("v"))
    assert info["netuid"] == 2 and info["stake"] == busy.get("TotalHotkeyAlpha", busy.address("v_hot"), 2)
    quote = ask(busy, "SwapRuntimeApi_sim_swap_tao_for_alpha", 2, 10 * 10**9)
    bought = busy.stake("v", 2, 10).event("StakeAdded")
    assert bought[3] == pytest.approx(quote["alpha_amount"], rel=1e-3) and bought[5] == quote["tao_fee"]


def test_root_has_a_price_of_one(net: Net) -> None:
    assert ask(net, "SwapRuntimeApi_current_alpha_price", 0) == 10**9
    assert ask(net, "SwapRuntimeApi_sim_swap_alpha_for_tao", 0, 5)["tao_amount"] == 5


def test_what_is_wrong_with_a_call_is_said(net: Net) -> None:
    call = Call(net.chain.ledger, net.chain.runtime, 0)
    with pytest.raises(NotExported):
        answer(call, "Nothing_at_all", b"")
    for name in ("SubnetInfoRuntimeApi_get_metagraph", "AccountNonceApi_account_nonce", "Metadata_metadata_at_version"):
        with pytest.raises(BadInput):
            answer(call, name, b"\x01\x02\x03")
    with pytest.raises(BadInput):
        answer(call, "TransactionPaymentApi_query_info", b"\x00" * 40)
