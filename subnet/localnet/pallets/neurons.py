"""Neurons: registering a hotkey on a subnet, replacing the weakest when it is full, and the endpoint it serves.

Prices and the choice of whom to replace follow the Subtensor. No proof of work: the SDK's way in is paying the burn
price.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subnet.localnet.consensus import pool as market
from subnet.localnet.dispatch import Context, call
from subnet.localnet.ledger import Pallet
from subnet.localnet.pallets import balances, keys, mechanisms, stake

ROOT_NETUID = 0
COLUMNS: dict[str, Any] = {
    "Active": True,
    "Emission": 0,
    "Consensus": 0,
    "Dividends": 0,
    "ValidatorTrust": 0,
    "ValidatorPermit": False,
}
"""The per-uid vectors and what a new neuron has in them; Incentive and LastUpdate are each mechanism's own."""


def uid_of(ctx: Context, netuid: int, hotkey: str) -> int:
    """HotKeyNotRegisteredInSubNet when it has none."""
    uid = ctx.sub.get("Uids", netuid, hotkey)
    ctx.ensure(uid is not None, "HotKeyNotRegisteredInSubNet")
    return uid


def hotkeys(sub: Pallet, netuid: int) -> list[str]:
    """By uid."""
    return [sub.get("Keys", netuid, uid) for uid in range(sub.get("SubnetworkN", netuid))]


def owner_uid(sub: Pallet, netuid: int) -> int | None:
    """The uid of the subnet owner's hotkey, if it is registered."""
    return sub.get("Uids", netuid, sub.get("SubnetOwnerHotkey", netuid))


def append(ctx: Context, netuid: int, hotkey: str) -> int:
    """Gives the hotkey the next free uid."""
    uid = ctx.sub.get("SubnetworkN", netuid)
    ctx.sub.put("SubnetworkN", netuid, uid + 1)
    for column, initial in COLUMNS.items():
        ctx.sub.put(column, netuid, [*ctx.sub.get(column, netuid), initial])
    for index in mechanisms.indices(ctx.sub, netuid):
        _set(ctx, "Incentive", index, uid, 0)
        set_last_update(ctx, index, uid)
    _seat(ctx, netuid, uid, hotkey)
    return uid


def replace(ctx: Context, netuid: int, uid: int, hotkey: str) -> None:
    """Gives the hotkey another's uid, with nothing left of the other's standing."""
    old = ctx.sub.get("Keys", netuid, uid)
    ctx.sub.remove("Uids", netuid, old)
    ctx.sub.remove("IsNetworkMember", old, netuid)
    for item in ("Axons", "Prometheus"):
        ctx.sub.remove(item, netuid, old)
    for column, initial in COLUMNS.items():
        _set(ctx, column, netuid, uid, initial)
    for index in mechanisms.indices(ctx.sub, netuid):
        _set(ctx, "Incentive", index, uid, 0)
        set_last_update(ctx, index, uid)
        ctx.sub.remove("Weights", index, uid)
        ctx.sub.remove("Bonds", index, uid)
        for other, row in list(ctx.sub.items("Weights", index)):
            if any(target == uid for target, _ in row):
                ctx.sub.put("Weights", index, other, [(target, 0 if target == uid else value) for target, value in row])
    _seat(ctx, netuid, uid, hotkey)


def _seat(ctx: Context, netuid: int, uid: int, hotkey: str) -> None:
    ctx.sub.put("Keys", netuid, uid, hotkey)
    ctx.sub.put("Uids", netuid, hotkey, uid)
    ctx.sub.put("BlockAtRegistration", netuid, uid, ctx.block)
    ctx.sub.put("IsNetworkMember", hotkey, netuid, True)


def _set(ctx: Context, column: str, netuid: int, uid: int, value: Any) -> None:
    values = list(ctx.sub.get(column, netuid))
    values += [0] * (uid + 1 - len(values))  # a mechanism opened later knows nobody
    values[uid] = value
    ctx.sub.put(column, netuid, values)


def set_last_update(ctx: Context, index: int, uid: int) -> None:
    """index: the mechanism's."""
    _set(ctx, "LastUpdate", index, uid, ctx.block)


def owned_uids(sub: Pallet, netuid: int) -> list[int]:
    """Uids of the owner hotkey and of the owner coldkey's other hotkeys, the owner hotkey's first, then by age."""
    found = set()
    for hotkey in sub.get("OwnedHotkeys", sub.get("SubnetOwner", netuid)):
        uid = sub.get("Uids", netuid, hotkey)
        if uid is not None:
            found.add(uid)
    first = owner_uid(sub, netuid)
    ordered = sorted(found - {first}, key=lambda uid: (sub.get("BlockAtRegistration", netuid, uid), uid))
    return ordered if first is None else [first, *ordered]


def to_replace(ctx: Context, netuid: int) -> int | None:
    """The uid a newcomer to a full subnet gets: least emission, then oldest, then lowest.

    The immune come last, the owner's never; None when nobody is left.
    """
    safe = set(owned_uids(ctx.sub, netuid)[: max(ctx.sub.get("ImmuneOwnerUidsLimit", netuid), 1)])
    immune: list[tuple[int, int, int]] = []
    exposed: list[tuple[int, int, int]] = []
    for candidate in _candidates(ctx.sub, netuid, safe):
        is_immune = ctx.block - candidate[1] < ctx.sub.get("ImmunityPeriod", netuid)
        (immune if is_immune else exposed).append(candidate)
    if len(exposed) > ctx.sub.get("MinNonImmuneUids", netuid):
        return min(exposed)[2]
    return min(immune)[2] if immune else None


def _candidates(sub: Pallet, netuid: int, safe: set[int]) -> Iterator[tuple[int, int, int]]:
    for uid, emission in enumerate(sub.get("Emission", netuid)):
        if uid not in safe:
            yield emission, sub.get("BlockAtRegistration", netuid, uid), uid


def set_burn(ctx: Context, netuid: int, burn: int) -> None:
    ctx.sub.put("Burn", netuid, burn)


def burn_bounds(sub: Pallet, netuid: int) -> tuple[int, int]:
    return sub.get("MinBurn", netuid), sub.get("MaxBurn", netuid)


def register(ctx: Context, netuid: int, hotkey: str) -> None:
    """Pays the burn price for a uid; the price then rises."""
    coldkey = ctx.signed()
    ctx.ensure(netuid != ROOT_NETUID, "RegistrationNotPermittedOnRootSubnet")
    ctx.ensure(ctx.sub.get("NetworksAdded", netuid), "SubnetNotExists")
    ctx.ensure(ctx.sub.get("NetworkRegistrationAllowed", netuid), "SubNetRegistrationDisabled")
    ctx.ensure(not ctx.sub.has("Uids", netuid, hotkey), "HotKeyAlreadyRegisteredInSubNet")
    burn = ctx.sub.get("Burn", netuid)
    ctx.ensure(balances.free(ctx.ledger, coldkey) >= burn, "NotEnoughBalanceToStake")
    keys.associate(ctx, coldkey, hotkey)
    ctx.ensure(keys.owns(ctx, coldkey, hotkey), "NonAssociatedColdKey")
    full = ctx.sub.get("SubnetworkN", netuid) >= ctx.sub.get("MaxAllowedUids", netuid)
    uid = to_replace(ctx, netuid) if full else None
    ctx.ensure(not full or uid is not None, "NoNeuronIdAvailable")
    # What is paid buys alpha that nobody gets: the TAO stays in the pool.
    bought = stake.buy(ctx, coldkey, netuid, burn)
    stake.burn_alpha(ctx, netuid, bought.received)
    if uid is None:
        uid = append(ctx, netuid, hotkey)
    else:
        replace(ctx, netuid, uid, hotkey)
    increase = ctx.sub.get("BurnIncreaseMult", netuid)["bits"] / 2**64
    set_burn(ctx, netuid, market.bump_burn(burn, increase, *burn_bounds(ctx.sub, netuid)))
    ctx.sub.add("RegistrationsThisBlock", netuid, 1)
    ctx.sub.add("RAORecycledForRegistration", netuid, burn)
    ctx.emit("SubtensorModule", "NeuronRegistered", [netuid, uid, hotkey])


@call("SubtensorModule", "burned_register")
def burned_register(ctx: Context, netuid: int, hotkey: str) -> None:
    register(ctx, netuid, hotkey)


@call("SubtensorModule", "register_limit")
def register_limit(ctx: Context, netuid: int, hotkey: str, limit_price: int) -> None:
    ctx.ensure(netuid != ROOT_NETUID, "RegistrationNotPermittedOnRootSubnet")
    ctx.ensure(ctx.sub.get("Burn", netuid) <= limit_price, "RegistrationPriceLimitExceeded")
    register(ctx, netuid, hotkey)


@call("SubtensorModule", "root_register")
def root_register(ctx: Context, hotkey: str) -> None:
    """Joins the root network for its burn price; when full, the least staked member leaves."""
    coldkey = ctx.signed()
    ctx.ensure(not ctx.sub.has("Uids", ROOT_NETUID, hotkey), "HotKeyAlreadyRegisteredInSubNet")
    burn = ctx.sub.get("Burn", ROOT_NETUID)
    ctx.ensure(balances.free(ctx.ledger, coldkey) >= burn, "NotEnoughBalanceToStake")
    keys.associate(ctx, coldkey, hotkey)
    ctx.ensure(keys.owns(ctx, coldkey, hotkey), "NonAssociatedColdKey")
    members = hotkeys(ctx.sub, ROOT_NETUID)
    if len(members) < ctx.sub.get("MaxAllowedUids", ROOT_NETUID):
        uid = append(ctx, ROOT_NETUID, hotkey)
    else:
        stakes = [(stake.on_hotkey(ctx.sub, member, ROOT_NETUID), uid) for uid, member in enumerate(members)]
        least, uid = min(stakes)
        ctx.ensure(least < stake.on_hotkey(ctx.sub, hotkey, ROOT_NETUID), "StakeTooLowForRoot")
        replace(ctx, ROOT_NETUID, uid, hotkey)
    balances.burn(ctx, coldkey, burn)
    set_burn(ctx, ROOT_NETUID, market.bump_burn(burn, market.BURN_INCREASE, *burn_bounds(ctx.sub, ROOT_NETUID)))
    ctx.emit("SubtensorModule", "NeuronRegistered", [ROOT_NETUID, uid, hotkey])


def _check_endpoint(ctx: Context, item: str, netuid: int, ip: int, port: int, ip_type: int) -> str:
    hotkey = ctx.signed()
    ctx.ensure(ctx.sub.has("Uids", netuid, hotkey), "HotKeyNotRegisteredInNetwork")
    ctx.ensure(ip_type in (4, 6), "InvalidIpType")
    # As on the Subtensor, zero is allowed and the loopback address is not.
    forbidden = ip == 0x7F000001 or ip >= 0xFFFFFFFF if ip_type == 4 else ip in (1, (1 << 128) - 1)
    ctx.ensure(not forbidden, "InvalidIpAddress")
    last = (ctx.sub.get(item, netuid, hotkey) or {"block": 0})["block"]
    limit = ctx.sub.get("ServingRateLimit", netuid)
    ctx.ensure(not last or ctx.block - last >= limit, "ServingRateLimitExceeded")
    ctx.ensure(port, "InvalidPort")
    return hotkey


@call("SubtensorModule", "serve_axon", free=True)
def serve_axon(
    ctx: Context, netuid: int, version: int, ip: int, port: int, ip_type: int, protocol: int,
    placeholder1: int, placeholder2: int,
) -> None:  # fmt: skip
    hotkey = _check_endpoint(ctx, "Axons", netuid, ip, port, ip_type)
    axon = {
        "block": ctx.block,
        "version": version,
        "ip": ip,
        "port": port,
        "ip_type": ip_type,
        "protocol": protocol,
        "placeholder1": placeholder1,
        "placeholder2": placeholder2,
    }
    ctx.sub.put("Axons", netuid, hotkey, axon)
    ctx.emit("SubtensorModule", "AxonServed", [netuid, hotkey])


@call("SubtensorModule", "serve_prometheus", free=True)
def serve_prometheus(ctx: Context, netuid: int, version: int, ip: int, port: int, ip_type: int) -> None:
    hotkey = _check_endpoint(ctx, "Prometheus", netuid, ip, port, ip_type)
    served = {"block": ctx.block, "version": version, "ip": ip, "port": port, "ip_type": ip_type}
    ctx.sub.put("Prometheus", netuid, hotkey, served)
    ctx.emit("SubtensorModule", "PrometheusServed", [netuid, hotkey])
