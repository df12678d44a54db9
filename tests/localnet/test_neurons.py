"""Registration, its price, replacement in a full subnet, and served endpoints."""

from __future__ import annotations

import pytest

from tests.localnet.conftest import Net

TAO = 10**9


def test_the_price_rises_with_each_registration_and_halves_in_time(net: Net) -> None:
    netuid = net.subnet()
    first = net.get("Burn", netuid)
    net.fund("a")
    spent = net.free("a")
    net.register(netuid, "a")
    spent -= net.free("a")
    assert first * 0.98 < spent < first and net.get("Burn", netuid) > 1.2 * first
    raised = net.get("Burn", netuid)
    net.produce(360)
    assert net.get("Burn", netuid) == pytest.approx(raised / 2, rel=0.01)
    net.sudo("AdminUtils", "sudo_set_burn_half_life", netuid=netuid, burn_half_life=5)
    net.produce(100)
    assert net.get("Burn", netuid) == net.get("MinBurn", netuid) == 500_000


def test_what_is_paid_stays_in_the_pool(net: Net) -> None:
    netuid = net.subnet()
    tao, outstanding = net.get("SubnetTAO", netuid), net.get("SubnetAlphaOut", netuid)
    net.register(netuid, "a")
    assert net.get("SubnetTAO", netuid) - tao == pytest.approx(TAO, rel=0.02)
    assert net.get("AlphaBurned", netuid, pallet="AlphaAssets") > 0
    assert net.get("SubnetAlphaOut", netuid) > outstanding


def test_registrations_that_are_refused(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a")
    net.fund("b", tao=5)
    hotkey = net.address("b_hot")

    def register(who: str, netuid: int, hotkey: str) -> str | None:
        return net.do(who, "SubtensorModule", "burned_register", netuid=netuid, hotkey=hotkey).error

    assert register("a", netuid, net.address("a_hot")) == "HotKeyAlreadyRegisteredInSubNet"
    assert register("b", 0, hotkey) == "RegistrationNotPermittedOnRootSubnet"
    assert register("b", 77, hotkey) == "SubnetNotExists"
    assert register("b", 1, net.address("a_hot")) == "NonAssociatedColdKey"
    limit = {"netuid": netuid, "hotkey": hotkey, "limit_price": 10}
    assert net.do("b", "SubtensorModule", "register_limit", **limit).error == "RegistrationPriceLimitExceeded"
    net.sudo("AdminUtils", "sudo_set_network_registration_allowed", netuid=netuid, registration_allowed=False)
    assert register("b", netuid, hotkey) == "SubNetRegistrationDisabled"
    net.sudo("AdminUtils", "sudo_set_network_registration_allowed", netuid=netuid, registration_allowed=True)
    net.sudo("Balances", "force_set_balance", who=net.address("b"), new_free=10**8)
    assert register("b", netuid, hotkey) == "NotEnoughBalanceToStake"


def test_a_full_subnet_replaces_the_weakest_but_never_the_owner(net: Net) -> None:
    netuid = net.subnet()
    for name, value in (
        ("sudo_set_min_non_immune_uids", {"min": 0}),
        ("sudo_set_min_allowed_uids", {"min_allowed_uids": 1}),
    ):
        assert net.sudo("AdminUtils", name, netuid=netuid, **value) == {"Ok": ()}
    assert net.sudo("AdminUtils", "sudo_set_max_allowed_uids", netuid=netuid, max_allowed_uids=3) == {"Ok": ()}
    assert net.register(netuid, "a", "b") == [1, 2]
    net.stake("a", netuid, 5)
    net.produce(10)
    net.do("a_hot", "SubtensorModule", "serve_axon", **axon(netuid))
    assert net.register(netuid, "c") == [1], "all immune: the oldest without emission"
    assert net.get("Axons", netuid, net.address("a_hot")) is None
    assert net.get("Uids", netuid, net.address("a_hot")) is None
    assert net.get("BlockAtRegistration", netuid, 1) == net.chain.head.number
    net.sudo("AdminUtils", "sudo_set_immunity_period", netuid=netuid, immunity_period=3)
    net.produce(4)
    assert net.register(netuid, "d") == [2]
    assert net.get("Keys", netuid, 0) == net.address("owner_hot")


def axon(netuid: int, **changes: int) -> dict[str, int]:
    fields = {"version": 1, "ip": 0x0A000001, "port": 8091, "ip_type": 4, "protocol": 4}
    return {"netuid": netuid, **fields, "placeholder1": 0, "placeholder2": 0, **changes}


def test_an_axon_is_served_by_its_hotkey_for_nothing(net: Net) -> None:
    netuid = net.subnet()
    net.register(netuid, "a")
    done = net.do("a_hot", "SubtensorModule", "serve_axon", **axon(netuid))
    assert done.error is None and not any(name == "TransactionFeePaid" for _, name, _ in done.events)
    served = net.get("Axons", netuid, net.address("a_hot"))
    assert (served["ip"], served["port"], served["block"]) == (0x0A000001, 8091, net.chain.head.number)
    assert net.do("a_hot", "SubtensorModule", "serve_axon", **axon(netuid)).error == "ServingRateLimitExceeded"
    net.sudo("AdminUtils", "sudo_set_serving_rate_limit", netuid=netuid, serving_rate_limit=0)
    assert net.do("a_hot", "SubtensorModule", "serve_axon", **axon(netuid, port=9)).error is None
    prometheus = {"netuid": netuid, "version": 1, "ip": 5, "port": 7, "ip_type": 4}
    assert net.do("a_hot", "SubtensorModule", "serve_prometheus", **prometheus).error is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ip_type": 5}, "InvalidIpType"),
        ({"ip": 0x7F000001}, "InvalidIpAddress"),
        ({"ip": 1, "ip_type": 6}, "InvalidIpAddress"),
        ({"port": 0}, "InvalidPort"),
    ],
)
def test_an_endpoint_that_makes_no_sense_is_refused(net: Net, changes: dict[str, int], error: str) -> None:
    hot = {"netuid": 1, "hotkey": net.address("Alice_x")}
    net.do("Alice", "SubtensorModule", "burned_register", **hot)
    assert net.do("Alice_x", "SubtensorModule", "serve_axon", **axon(1, **changes)).error == error


def test_only_the_registered_serve(net: Net) -> None:
    assert net.do("stranger", "SubtensorModule", "serve_axon", **axon(1)).error == "HotKeyNotRegisteredInNetwork"


def test_root_seats_go_to_stake_when_they_run_out(net: Net) -> None:
    net.fund("a", "b", "c")

    def join(name: str) -> str | None:
        return net.do(name, "SubtensorModule", "root_register", hotkey=net.address(f"{name}_hot")).error

    net.sudo("AdminUtils", "sudo_set_min_allowed_uids", netuid=0, min_allowed_uids=1)
    net.sudo("AdminUtils", "sudo_set_max_allowed_uids", netuid=0, max_allowed_uids=2)
    assert join("a") is None and join("b") is None
    assert join("a") == "HotKeyAlreadyRegisteredInSubNet"
    assert join("c") == "StakeTooLowForRoot"
    net.do("c", "SubtensorModule", "try_associate_hotkey", hotkey=net.address("c_hot"))
    assert net.stake("c", 0, 5).error is None
    assert join("c") is None and net.get("Uids", 0, net.address("c_hot")) == 0
