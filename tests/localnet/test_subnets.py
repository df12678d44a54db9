"""Registering and starting subnets, and what their owners may change."""

from __future__ import annotations

from subnet.localnet.pallets import stake, subnets
from tests.localnet.conftest import Net

TAO = 10**9


def register(net: Net, who: str, hotkey: str | None = None) -> str | None:
    address = net.address(hotkey or f"{who}_hot")
    return net.do(who, "SubtensorModule", "register_network", hotkey=address).error


def test_a_subnet_costs_its_lock_and_the_next_one_twice_that(net: Net) -> None:
    net.fund("owner", tao=5000)
    before = net.free("owner")
    assert register(net, "owner") is None
    assert before - net.free("owner") - 1000 * TAO < TAO
    assert net.free("owner") < before - 1000 * TAO
    assert net.get("SubnetTAO", 2) == net.get("SubnetLocked", 2) == 1000 * TAO
    assert net.get("SubnetOwner", 2) == net.address("owner") and net.get("Uids", 2, net.address("owner_hot")) == 0
    sub = net.chain.ledger.pallet("SubtensorModule")
    cost = subnets.lock_cost(sub, net.chain.head.number)
    assert cost == 2000 * TAO
    assert subnets.lock_cost(sub, net.chain.head.number + 50) == 1500 * TAO
    assert subnets.lock_cost(sub, net.chain.head.number + 100) == 1000 * TAO
    assert register(net, "owner", "second") is None and net.get("NetworksAdded", 3)
    assert net.get("TokenSymbol", 2) == "β" and net.get("TokenSymbol", 3) == "γ"


def test_new_subnets_have_this_chains_terms(net: Net) -> None:
    netuid = net.subnet()
    assert net.get("Tempo", netuid) == 10 and net.get("WeightsSetRateLimit", netuid) == 5
    assert net.get("CommitRevealWeightsEnabled", netuid) is False and net.get("MinAllowedWeights", netuid) == 1
    assert net.get("SubnetTAO", netuid) == net.get("SubnetAlphaIn", netuid)


def test_who_cannot_register_a_subnet(net: Net) -> None:
    net.fund("poor", tao=10)
    assert register(net, "poor") == "CannotAffordLockCost"
    net.fund("owner", "thief")
    assert register(net, "owner") is None
    assert register(net, "thief", "owner_hot") == "NonAssociatedColdKey"
    net.sudo("AdminUtils", "sudo_set_network_rate_limit", rate_limit=100)
    assert register(net, "thief") == "NetworkTxRateLimitExceeded"
    net.sudo("AdminUtils", "sudo_set_network_rate_limit", rate_limit=0)
    net.sudo("AdminUtils", "sudo_set_subnet_limit", max_subnets=2)
    assert register(net, "thief") == "SubnetLimitReached"


def test_only_the_owner_starts_and_only_once(net: Net) -> None:
    net.fund("owner", "thief")
    register(net, "owner")
    start = ("SubtensorModule", "start_call")
    hotkey = net.address("owner_hot")
    stake_call = {"hotkey": hotkey, "netuid": 2, "amount_staked": TAO}
    assert net.do("owner", "SubtensorModule", "add_stake", **stake_call).error == "SubtokenDisabled"
    assert net.do("thief", *start, netuid=2).error == "BadOrigin"
    assert net.do("owner", *start, netuid=9).error == "SubnetNotExists"
    net.sudo("AdminUtils", "sudo_set_start_call_delay", delay=1000)
    assert net.do("owner", *start, netuid=2).error == "NeedWaitingMoreBlocksToStarCall"
    net.sudo("AdminUtils", "sudo_set_start_call_delay", delay=0)
    assert net.do("owner", *start, netuid=2).error is None
    assert net.do("owner", *start, netuid=2).error == "FirstEmissionBlockNumberAlreadySet"


def test_owner_parameters(net: Net) -> None:
    netuid = net.subnet()
    net.fund("thief")

    def change(who: str, name: str, **values: int) -> str | None:
        return net.do(who, "AdminUtils", name, netuid=netuid, **values).error

    assert change("owner", "sudo_set_serving_rate_limit", serving_rate_limit=7) is None
    assert net.get("ServingRateLimit", netuid) == 7
    assert change("thief", "sudo_set_serving_rate_limit", serving_rate_limit=7) == "BadOrigin"
    assert change("owner", "sudo_set_kappa", kappa=7) == "BadOrigin"
    assert net.sudo("AdminUtils", "sudo_set_kappa", netuid=netuid, kappa=7) == {"Ok": ()}
    assert change("owner", "sudo_set_max_allowed_uids", max_allowed_uids=5000) == (
        "MaxAllowedUidsGreaterThanDefaultMaxAllowedUids"
    )
    assert change("owner", "sudo_set_min_burn", min_burn=10**12) == "ValueNotInBounds"
    assert change("owner", "sudo_set_commit_reveal_weights_interval", interval=0) == "RevealPeriodTooSmall"
    missing = net.sudo("AdminUtils", "sudo_set_kappa", netuid=99, kappa=7)
    assert net.error_name(missing["Err"]) == "SubnetDoesNotExist"


def test_an_owner_is_held_to_window_and_limit_where_root_sets_them(net: Net) -> None:
    netuid = net.subnet()
    net.sudo("AdminUtils", "sudo_set_owner_hparam_rate_limit", epochs=2)
    change = {"netuid": netuid, "serving_rate_limit": 7}
    assert net.do("owner", "AdminUtils", "sudo_set_serving_rate_limit", **change).error is None
    assert net.do("owner", "AdminUtils", "sudo_set_serving_rate_limit", **change).error == "TxRateLimitExceeded"
    assert net.do("owner", "AdminUtils", "sudo_set_immunity_period", netuid=netuid, immunity_period=3).error is None
    net.produce(20)
    assert net.do("owner", "AdminUtils", "sudo_set_serving_rate_limit", **change).error is None
    net.sudo("AdminUtils", "sudo_set_admin_freeze_window", window=11)
    frozen = net.do("owner", "AdminUtils", "sudo_set_immunity_period", netuid=netuid, immunity_period=4)
    assert frozen.error == "AdminActionProhibitedDuringWeightsWindow"


def test_tempo_and_triggered_epochs(net: Net) -> None:
    netuid = net.subnet()
    assert net.do("owner", "SubtensorModule", "set_tempo", netuid=netuid, tempo=360).error is None
    index = net.get("SubnetEpochIndex", netuid)
    net.produce(20)
    assert net.get("SubnetEpochIndex", netuid) == index
    done = net.do("owner", "SubtensorModule", "trigger_epoch", netuid=netuid)
    assert done.event("EpochTriggered")["fires_at"] == net.chain.head.number + 1
    again = net.do("owner", "SubtensorModule", "trigger_epoch", netuid=netuid)
    assert net.get("SubnetEpochIndex", netuid) == index + 1 and again.error is None


def test_identity_and_symbol(net: Net) -> None:
    netuid = net.subnet()
    identity = dict.fromkeys(subnets.IDENTITY_LIMITS, b"text")
    assert net.do("owner", "SubtensorModule", "set_subnet_identity", netuid=netuid, **identity).error is None
    assert net.get("SubnetIdentitiesV3", netuid)["subnet_name"] == "text"
    long = {**identity, "subnet_name": b"x" * 257}
    assert net.do("owner", "SubtensorModule", "set_subnet_identity", netuid=netuid, **long).error == "InvalidIdentity"
    symbol = "α".encode()
    assert (
        net.do("owner", "SubtensorModule", "update_symbol", netuid=netuid, symbol=symbol).error == "SymbolAlreadyInUse"
    )
    assert net.do("owner", "SubtensorModule", "update_symbol", netuid=netuid, symbol="ω".encode()).error is None


def test_every_subnet_has_an_account_of_its_own() -> None:
    accounts = [stake.subnet_account(netuid) for netuid in range(300)]
    assert len(set(accounts)) == 300
