"""Neurons, stake and delegates by account."""

from __future__ import annotations

from typing import Any

from subnet.localnet.pallets import neurons, stake, subnets
from subnet.localnet.runtime_api import Call, api
from subnet.localnet.runtime_api.metagraph import NO_AXON

NO_PROMETHEUS = {"block": 0, "version": 0, "ip": 0, "port": 0, "ip_type": 0}


def _neuron(call: Call, netuid: int, uid: int) -> dict[str, Any]:
    sub = call.sub
    hotkey = sub.get("Keys", netuid, uid)
    coldkey = sub.get("Owner", hotkey)
    incentive = sub.get("Incentive", netuid)[uid]
    return {
        "hotkey": hotkey,
        "coldkey": coldkey,
        "uid": uid,
        "netuid": netuid,
        "active": sub.get("Active", netuid)[uid],
        "axon_info": sub.get("Axons", netuid, hotkey) or NO_AXON,
        "prometheus_info": sub.get("Prometheus", netuid, hotkey) or NO_PROMETHEUS,
        "stake": [(coldkey, stake.on_hotkey(sub, hotkey, netuid))],
        "rank": incentive,
        "emission": sub.get("Emission", netuid)[uid],
        "incentive": incentive,
        "consensus": sub.get("Consensus", netuid)[uid],
        "trust": 0,
        "validator_trust": sub.get("ValidatorTrust", netuid)[uid],
        "dividends": sub.get("Dividends", netuid)[uid],
        "last_update": sub.get("LastUpdate", netuid)[uid],
        "validator_permit": sub.get("ValidatorPermit", netuid)[uid],
        "pruning_score": 0,
    }


@api("NeuronInfoRuntimeApi_get_neuron_lite")
def neuron_lite(call: Call, netuid: int, uid: int) -> dict[str, Any] | None:
    return _neuron(call, netuid, uid) if uid < call.sub.get("SubnetworkN", netuid) else None


@api("NeuronInfoRuntimeApi_get_neurons_lite")
def neurons_lite(call: Call, netuid: int) -> list[dict[str, Any]]:
    return [_neuron(call, netuid, uid) for uid in range(call.sub.get("SubnetworkN", netuid))]


@api("NeuronInfoRuntimeApi_get_neuron")
def neuron(call: Call, netuid: int, uid: int) -> dict[str, Any] | None:
    lite = neuron_lite(call, netuid, uid)
    if lite is None:
        return None
    return {**lite, "weights": call.sub.get("Weights", netuid, uid), "bonds": call.sub.get("Bonds", netuid, uid)}


@api("NeuronInfoRuntimeApi_get_neurons")
def all_neurons(call: Call, netuid: int) -> list[Any]:
    return [neuron(call, netuid, uid) for uid in range(call.sub.get("SubnetworkN", netuid))]


def _stake_info(call: Call, hotkey: str, coldkey: str, netuid: int) -> dict[str, Any]:
    sub = call.sub
    uid = sub.get("Uids", netuid, hotkey)
    emission = sub.get("Emission", netuid) if uid is not None else []
    return {
        "hotkey": hotkey,
        "coldkey": coldkey,
        "netuid": netuid,
        "stake": stake.held(sub, hotkey, coldkey, netuid),
        "locked": 0,
        "emission": emission[uid] if emission else 0,
        "tao_emission": 0,
        "drain": 0,
        "is_registered": uid is not None,
    }


@api("StakeInfoRuntimeApi_get_stake_info_for_coldkey")
def stake_of_coldkey(call: Call, coldkey: str) -> list[dict[str, Any]]:
    return [
        _stake_info(call, hotkey, coldkey, netuid)
        for hotkey in call.sub.get("StakingHotkeys", coldkey)
        for netuid, _ in call.sub.items("AlphaV2", hotkey, coldkey)
    ]


@api("StakeInfoRuntimeApi_get_stake_info_for_coldkeys")
def stake_of_coldkeys(call: Call, coldkeys: list[str]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(coldkey, stake_of_coldkey(call, coldkey)) for coldkey in coldkeys]


@api("StakeInfoRuntimeApi_get_stake_info_for_hotkey_coldkey_netuid")
def stake_of_pair(call: Call, hotkey: str, coldkey: str, netuid: int) -> dict[str, Any] | None:
    return _stake_info(call, hotkey, coldkey, netuid)


@api("StakeInfoRuntimeApi_get_stake_availability_for_coldkeys")
def stake_availability(call: Call, coldkeys: list[str], netuids: list[int] | None) -> dict[str, dict[int, Any]]:
    """Nothing is ever locked here."""
    found: dict[str, dict[int, Any]] = {}
    for coldkey in coldkeys:
        totals: dict[int, int] = {}
        for info in stake_of_coldkey(call, coldkey):
            totals[info["netuid"]] = totals.get(info["netuid"], 0) + info["stake"]
        found[coldkey] = {
            netuid: {"total": total, "locked": 0, "available": total}
            for netuid, total in totals.items()
            if netuids is None or netuid in netuids
        }
    return found


@api("StakeInfoRuntimeApi_get_stake_fee")
def stake_fee(
    call: Call, origin: Any, origin_coldkey: str, destination: Any, destination_coldkey: str, amount: int
) -> int:
    """rao: the swap fee of the subnet that is left, or entered from outside."""
    netuid = origin[1] if origin else destination[1] if destination else stake.ROOT_NETUID
    if netuid == stake.ROOT_NETUID or (origin and destination and origin[1] == destination[1]):
        return 0
    return amount * call.ledger.get("Swap", "FeeRate", netuid) // 0xFFFF


@api("StakeInfoRuntimeApi_get_coldkey_lock")
def coldkey_lock(call: Call, coldkey: str, netuid: int) -> None:
    return None


@api("StakeInfoRuntimeApi_get_hotkey_conviction")
def hotkey_conviction(call: Call, hotkey: str, netuid: int) -> dict[str, int]:
    return {"bits": 0}


@api("StakeInfoRuntimeApi_get_most_convicted_hotkey_on_subnet")
def most_convicted_hotkey(call: Call, netuid: int) -> None:
    return None


def _delegate(call: Call, hotkey: str) -> dict[str, Any]:
    sub = call.sub
    nominators: dict[str, list[tuple[int, int]]] = {}
    for (coldkey, netuid), share in sub.items("AlphaV2", hotkey):
        nominators.setdefault(coldkey, []).append((netuid, share["mantissa"]))
    registrations = [netuid for netuid, member in sub.items("IsNetworkMember", hotkey) if member]
    permits = []
    for netuid in registrations:
        if sub.get("ValidatorPermit", netuid)[sub.get("Uids", netuid, hotkey)]:
            permits.append(netuid)
    return {
        "delegate_ss58": hotkey,
        "take": sub.get("Delegates", hotkey),
        "nominators": list(nominators.items()),
        "owner_ss58": sub.get("Owner", hotkey),
        "registrations": registrations,
        "validator_permits": permits,
        "return_per_1000": 0,
        "total_daily_return": 0,
    }


@api("DelegateInfoRuntimeApi_get_delegate")
def delegate(call: Call, hotkey: str) -> dict[str, Any] | None:
    return _delegate(call, hotkey) if call.sub.has("Owner", hotkey) else None


@api("DelegateInfoRuntimeApi_get_delegates")
def delegates(call: Call) -> list[dict[str, Any]]:
    """Every registered hotkey: on this chain all of them accept stake from others."""
    hotkeys = {hotkey for netuid in subnets.netuids(call.sub) for hotkey in neurons.hotkeys(call.sub, netuid)}
    return [_delegate(call, hotkey) for hotkey in sorted(hotkeys)]


@api("DelegateInfoRuntimeApi_get_delegated")
def delegated(call: Call, coldkey: str) -> list[Any]:
    return [
        (_delegate(call, hotkey), (netuid, share["mantissa"]))
        for hotkey in call.sub.get("StakingHotkeys", coldkey)
        for netuid, share in call.sub.items("AlphaV2", hotkey, coldkey)
    ]


@api("BetaBasketRuntimeApi_get_root_basket_owed")
def root_basket_owed(call: Call, coldkey: str) -> int:
    """No baskets on this chain; wallets ask for them all the same."""
    return 0


@api("BetaBasketRuntimeApi_get_basket_payout")
def basket_payout(call: Call, hotkey: str, coldkey: str) -> int:
    return 0


@api("BetaBasketRuntimeApi_get_validator_basket_nav")
def validator_basket_nav(call: Call, hotkey: str) -> int:
    return 0


@api("BetaBasketRuntimeApi_get_validator_basket")
def validator_basket(call: Call, hotkey: str) -> list[Any]:
    return []


@api("BetaBasketRuntimeApi_get_root_basket_total_nav")
def root_basket_total_nav(call: Call) -> int:
    return 0


@api("BetaBasketRuntimeApi_get_root_basket_positions")
def root_basket_positions(call: Call, coldkey: str) -> list[Any]:
    return []
