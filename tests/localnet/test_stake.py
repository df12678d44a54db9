"""Stake: the pool on the way in and out, whose it is, and that alpha neither appears nor vanishes."""

from __future__ import annotations

import pytest

from subnet.localnet.pallets import stake
from tests.localnet.conftest import Net

TAO = 10**9


def held(net: Net, name: str, netuid: int, hotkey: str | None = None) -> int:
    sub = net.chain.ledger.pallet("SubtensorModule")
    return stake.held(sub, net.address(hotkey or f"{name}_hot"), net.address(name), netuid)


def test_stake_is_bought_from_the_pool_and_raises_the_price(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a")
    sub = net.chain.ledger.pallet("SubtensorModule")
    price, pool = stake.price_rao(sub, netuid), net.get("SubnetTAO", netuid)
    done = net.stake("a", netuid, 100)
    coldkey, hotkey, paid, alpha, where, fee = done.event("StakeAdded")
    assert (coldkey, hotkey, where) == (net.address("a"), net.address("a_hot"), netuid)
    assert paid == 100 * TAO and fee == 100 * TAO * 33 // 65535
    assert alpha == held(net, "a", netuid) < 100 * TAO * TAO // price
    assert net.get("SubnetTAO", netuid) == pool + paid - fee and stake.price_rao(sub, netuid) > price


def test_unstaking_gives_tao_back_and_lowers_the_price(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a")
    net.stake("a", netuid, 100)
    before, alpha = net.free("a"), held(net, "a", netuid)
    everything = {"hotkey": net.address("a_hot"), "netuid": netuid, "amount_unstaked": 10**18}
    done = net.do("a", "SubtensorModule", "remove_stake", **everything)
    received, used = done.event("StakeRemoved")[2:4]
    assert used == alpha and held(net, "a", netuid) == 0
    assert net.free("a") == before + received - done.event("TransactionFeePaid")["actual_fee"]
    assert 99 * TAO < received < 100 * TAO
    assert net.do("a", "SubtensorModule", "remove_stake", **everything).error == "NotEnoughStakeToWithdraw"


def test_refusals_of_stake(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a")
    assert net.stake("a", 88, 1).error == "SubnetNotExists"
    assert net.stake("a", 1, 1).error == "SubtokenDisabled"
    assert net.stake("a", netuid, 10**6).error == "NotEnoughBalanceToStake"
    assert net.stake("a", netuid, 1, hotkey="nobody").error == "HotKeyAccountNotExists"
    dust = {"hotkey": net.address("a_hot"), "netuid": netuid, "amount_staked": 10}
    assert net.do("a", "SubtensorModule", "add_stake", **dust).error == "AmountTooLow"


def test_limit_prices_refuse_or_cut_the_swap(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a")
    sub = net.chain.ledger.pallet("SubtensorModule")
    order = {"hotkey": net.address("a_hot"), "netuid": netuid, "amount_staked": 500 * TAO}
    limit = stake.price_rao(sub, netuid) * 101 // 100

    def buy(limit: int, partial: bool):
        return net.do("a", "SubtensorModule", "add_stake_limit", **order, limit_price=limit, allow_partial=partial)

    assert buy(limit, False).error == "SlippageTooHigh"
    assert buy(stake.price_rao(sub, netuid) - 1000, True).error == "PriceLimitExceeded"
    paid = buy(limit, True).event("StakeAdded")[2]
    assert 4 * TAO < paid < 6 * TAO and stake.price_rao(sub, netuid) <= limit
    sale = {"hotkey": net.address("a_hot"), "netuid": netuid, "amount_unstaked": held(net, "a", netuid)}
    floor = stake.price_rao(sub, netuid) * 999 // 1000
    refused = net.do("a", "SubtensorModule", "remove_stake_limit", **sale, limit_price=floor, allow_partial=False)
    assert refused.error == "SlippageTooHigh"
    cut = net.do("a", "SubtensorModule", "remove_stake_limit", **sale, limit_price=floor, allow_partial=True)
    assert cut.error is None and held(net, "a", netuid) > 0


def test_root_stake_is_one_to_one(net: Net) -> None:
    net.fund("a")
    net.do("a", "SubtensorModule", "try_associate_hotkey", hotkey=net.address("a_hot"))
    assert net.stake("a", 0, 50).error is None and held(net, "a", 0) == 50 * TAO
    back = {"hotkey": net.address("a_hot"), "netuid": 0, "amount_unstaked": 20 * TAO}
    assert net.do("a", "SubtensorModule", "remove_stake", **back).event("StakeRemoved")[2] == 20 * TAO
    assert net.do("a", "SubtensorModule", "unstake_all", hotkey=net.address("a_hot")).error is None
    assert held(net, "a", 0) == 0


def test_stake_moves_between_hotkeys_coldkeys_and_subnets(net: Net) -> None:
    first, second = net.subnet("owner"), net.subnet("other")
    net.register(first, "a", "b")
    net.stake("a", first, 20)
    amount = held(net, "a", first) // 2
    between = {"origin_netuid": first, "alpha_amount": amount}
    hotkeys = {"origin_hotkey": net.address("a_hot"), "destination_hotkey": net.address("b_hot")}
    assert net.do("a", "SubtensorModule", "move_stake", **hotkeys, **between, destination_netuid=first).error is None
    assert held(net, "a", first, "b_hot") == amount
    gift = {"destination_coldkey": net.address("b"), "hotkey": net.address("b_hot"), **between}
    assert net.do("a", "SubtensorModule", "transfer_stake", **gift, destination_netuid=first).error is None
    assert held(net, "b", first) == amount and held(net, "a", first, "b_hot") == 0
    swap = {"hotkey": net.address("b_hot"), **between}
    assert net.do("b", "SubtensorModule", "swap_stake", **swap, destination_netuid=first).error == "SameNetuid"
    assert net.do("b", "SubtensorModule", "swap_stake", **swap, destination_netuid=second).error is None
    assert held(net, "b", first) == 0 and held(net, "b", second) == pytest.approx(amount, rel=0.1)
    net.sudo("AdminUtils", "sudo_set_toggle_transfer", netuid=first, toggle=False)
    refused = net.do("a", "SubtensorModule", "transfer_stake", **gift, destination_netuid=first)
    assert refused.error == "TransferDisallowed"


def test_alpha_can_be_burned_and_recycled_by_its_holder(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a")
    net.stake("a", netuid, 20)
    order = {"hotkey": net.address("a_hot"), "amount": TAO}
    assert net.do("a", "SubtensorModule", "burn_alpha", **order, netuid=netuid).error is None
    assert net.do("a", "SubtensorModule", "recycle_alpha", **order, netuid=netuid).error is None
    assert net.get("AlphaRecycled", netuid, pallet="AlphaAssets") == TAO
    assert net.do("a", "SubtensorModule", "burn_alpha", **order, netuid=0).error == "CannotBurnOrRecycleOnRootSubnet"


def assert_conserved(net: Net, netuid: int) -> None:
    """Every alpha outside the pool is somebody's stake, pending, burned or the protocol's; the pool's TAO is there."""
    sub, assets = net.chain.ledger.pallet("SubtensorModule"), net.chain.ledger.pallet("AlphaAssets")
    stakes = sum(share["mantissa"] for (_, _, where), share in sub.items("AlphaV2") if where == netuid)
    pending = sum(sub.get(f"Pending{kind}", netuid) for kind in ("OwnerCut", "ServerEmission", "ValidatorEmission"))
    gone = assets.get("AlphaBurned", netuid) + sub.get("SubnetProtocolAlpha", netuid)
    assert stakes + pending + gone == sub.get("SubnetAlphaOut", netuid)
    assert sub.get("TotalAlphaStaked", netuid) == stakes
    issued = assets.get("TotalAlphaIssuance", netuid)
    assert sub.get("SubnetAlphaOut", netuid) + sub.get("SubnetAlphaIn", netuid) == issued
    account = net.get("Account", stake.subnet_account(netuid), pallet="System")
    assert account["data"]["free"] == sub.get("SubnetTAO", netuid)
    everybody = net.chain.ledger.pallet("System").items("Account")
    assert sum(record["data"]["free"] for _, record in everybody) == sub.get("TotalIssuance")


def test_nothing_appears_or_vanishes(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a", "b")
    net.stake("a", netuid, 30)
    net.stake("b", netuid, 10, hotkey="a_hot")
    net.sudo("AdminUtils", "sudo_set_subnet_emission_enabled", netuid=netuid, enabled=True)
    for _ in range(4):
        net.produce(11)
        net.do("a_hot", "SubtensorModule", "set_weights", netuid=netuid, dests=[0, 2], weights=[1, 2], version_key=0)
        assert_conserved(net, netuid)
    net.do("b", "SubtensorModule", "unstake_all", hotkey=net.address("a_hot"))
    assert_conserved(net, netuid)
    assert net.get("AlphaBurned", netuid, pallet="AlphaAssets") > 0 and net.get("SubnetProtocolAlpha", netuid) > 0
