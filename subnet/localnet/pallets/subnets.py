"""Subnets: their registration, their start, and what their owner may set without an admin call."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from subnet.localnet.dispatch import BAD_ORIGIN, ROOT, Context, DispatchError, call
from subnet.localnet.ledger import Pallet
from subnet.localnet.pallets import balances, keys, neurons, stake

DYNAMIC = 1
"""The one mechanism a subnet can have: a token of its own with a pool."""
FIRST_BURN = 1_000_000_000
"""rao a registration costs on a new subnet."""
LAST_REGISTERED = "NetworkLastRegistered"
SYMBOLS = "Ταβγδεζηθικλμνξοπρσtυφχψωאבגדהוזחטיךכלםמןנסעףפץצקרשתابتثجحخدذرزسشصضطظعغفقكلمنهويى"
"""Token symbols by netuid."""
IDENTITY_LIMITS = {
    "subnet_name": 256, "github_repo": 1024, "subnet_contact": 1024, "subnet_url": 1024,
    "discord": 256, "description": 1024, "logo_url": 1024, "additional": 1024,
}  # fmt: skip
"""Bytes of each field."""


def exists(sub: Pallet, netuid: int) -> bool:
    return sub.get("NetworksAdded", netuid)


def netuids(sub: Pallet) -> list[int]:
    """All subnets, root first."""
    return sorted(netuid for netuid, added in sub.items("NetworksAdded") if added)


def ensure_owner_or_root(ctx: Context, netuid: int) -> None:
    ctx.ensure(exists(ctx.sub, netuid), "SubnetNotExists")
    if ctx.origin not in (ROOT, ctx.sub.get("SubnetOwner", netuid)):
        raise DispatchError(BAD_ORIGIN)


def lock_cost(sub: Pallet, block: int) -> int:
    """rao the next subnet costs: twice the last price, falling linearly to the minimum."""
    last, last_block = sub.get("NetworkLastLockCost"), sub.get("LastRateLimitedBlock", LAST_REGISTERED)
    fallen = last // sub.get("NetworkLockReductionInterval") * (block - last_block)
    return max(last * (2 if last_block else 1) - fallen, sub.get("NetworkMinLockCost"))


def initialize(ctx: Context, netuid: int, tempo: int) -> None:
    """A subnet without neurons, pool or owner, with the parameters new subnets have on this chain."""
    for item, value in {
        "SubnetworkN": 0,
        "NetworksAdded": True,
        "Tempo": tempo,
        "LastEpochBlock": max(ctx.block - netuid % tempo, 0),
        "NetworkRegistrationAllowed": True,
        "MaxAllowedUids": 256,
        "MaxAllowedValidators": 64,
        "MinAllowedWeights": 1,
        "ImmunityPeriod": 5000,
        "Yuma3On": True,
        "Burn": FIRST_BURN,
        "WeightsSetRateLimit": ctx.rules.weights_rate_limit,
        # Timelocked weights need the drand beacon, which a chain without internet does not hear.
        "CommitRevealWeightsEnabled": False,
        "SubnetMechanism": DYNAMIC,
        "NetworkRegisteredAt": ctx.block,
        "SubnetEmissionEnabled": False,
        "TokenSymbol": _free_symbol(ctx.sub, netuid),
    }.items():
        ctx.sub.put(item, netuid, value)
    ctx.sub.add("TotalNetworks", 1)


def _free_symbol(sub: Pallet, netuid: int) -> str:
    taken = {symbol for other, symbol in sub.items("TokenSymbol") if other != netuid}
    return next((symbol for symbol in SYMBOLS[netuid:] + SYMBOLS if symbol not in taken), f"sn{netuid}")


def _median_price(sub: Pallet, taken: list[int]) -> Fraction:
    """The median price of an alpha in TAO over the subnets, 1 when there are none: what a new subnet's alpha costs."""
    prices = sorted(stake.pool(sub, netuid).price for netuid in taken if netuid != stake.ROOT_NETUID)
    prices = [price for price in prices if price] or [Fraction(1)]
    return (prices[(len(prices) - 1) // 2] + prices[len(prices) // 2]) / 2


def open_pool(ctx: Context, netuid: int, owner: str, hotkey: str, tao: int, alpha: int) -> None:
    """Gives the subnet its owner, and its pool the reserves; the TAO must be on the subnet's account already."""
    ctx.sub.put("SubnetTAO", netuid, tao)
    ctx.sub.put("SubnetAlphaIn", netuid, alpha)
    ctx.sub.add("TotalStake", tao)
    ctx.ledger.pallet("AlphaAssets").add("TotalAlphaIssuance", netuid, alpha)
    ctx.sub.put("SubnetOwner", netuid, owner)
    ctx.sub.put("SubnetOwnerHotkey", netuid, hotkey)
    keys.associate(ctx, owner, hotkey)
    neurons.append(ctx, netuid, hotkey)


def _register(ctx: Context, hotkey: str, identity: dict[str, str] | None) -> None:
    coldkey = ctx.signed()
    ctx.ensure(not keys.exists(ctx, hotkey) or keys.owns(ctx, coldkey, hotkey), "NonAssociatedColdKey")
    last = ctx.sub.get("LastRateLimitedBlock", LAST_REGISTERED)
    ctx.ensure(not last or ctx.block - last >= ctx.sub.get("NetworkRateLimit"), "NetworkTxRateLimitExceeded")
    taken = netuids(ctx.sub)
    ctx.ensure(len(taken) - 1 < ctx.sub.get("SubnetLimit"), "SubnetLimitReached")
    cost = lock_cost(ctx.sub, ctx.block)
    ctx.ensure(balances.free(ctx.ledger, coldkey) >= cost, "CannotAffordLockCost")
    price = _median_price(ctx.sub, taken)
    netuid = next(number for number in range(1, len(taken) + 1) if number not in taken)
    initialize(ctx, netuid, ctx.rules.tempo)
    balances.move(ctx, coldkey, stake.subnet_account(netuid), cost)
    ctx.sub.put("NetworkLastLockCost", cost)
    ctx.sub.put("LastRateLimitedBlock", LAST_REGISTERED, ctx.block)
    ctx.sub.put("SubnetLocked", netuid, cost)
    ctx.sub.add("RegisteredSubnetCounter", netuid, 1)
    open_pool(ctx, netuid, coldkey, hotkey, cost, int(cost / price))
    if identity is not None:
        _set_identity(ctx, netuid, identity)
    ctx.emit("SubtensorModule", "NetworkAdded", [netuid, DYNAMIC])


@call("SubtensorModule", "register_network")
def register_network(ctx: Context, hotkey: str) -> None:
    _register(ctx, hotkey, None)


@call("SubtensorModule", "register_network_with_identity")
def register_network_with_identity(ctx: Context, hotkey: str, identity: dict[str, str] | None) -> None:
    _register(ctx, hotkey, identity)


@call("SubtensorModule", "start_call")
def start_call(ctx: Context, netuid: int) -> None:
    """Opens the subnet's pool and begins its emission."""
    ctx.ensure(exists(ctx.sub, netuid), "SubnetNotExists")
    if ctx.signed() != ctx.sub.get("SubnetOwner", netuid):
        raise DispatchError(BAD_ORIGIN)
    ctx.ensure(ctx.sub.get("FirstEmissionBlockNumber", netuid) is None, "FirstEmissionBlockNumberAlreadySet")
    earliest = ctx.sub.get("NetworkRegisteredAt", netuid) + ctx.sub.get("StartCallDelay")
    ctx.ensure(ctx.block >= earliest, "NeedWaitingMoreBlocksToStarCall")
    ctx.sub.put("FirstEmissionBlockNumber", netuid, ctx.block + 1)
    ctx.sub.put("SubtokenEnabled", netuid, True)
    ctx.emit("SubtensorModule", "FirstEmissionBlockNumberSet", [netuid, ctx.block + 1])


def _set_identity(ctx: Context, netuid: int, identity: dict[str, str]) -> None:
    fits = all(len(identity[field].encode()) <= limit for field, limit in IDENTITY_LIMITS.items())
    ctx.ensure(fits, "InvalidIdentity")
    ctx.sub.put("SubnetIdentitiesV3", netuid, identity)
    ctx.emit("SubtensorModule", "SubnetIdentitySet", netuid)


@call("SubtensorModule", "set_subnet_identity")
def set_subnet_identity(ctx: Context, netuid: int, **identity: Any) -> None:
    ensure_owner_or_root(ctx, netuid)
    _set_identity(ctx, netuid, identity)


@call("SubtensorModule", "update_symbol")
def update_symbol(ctx: Context, netuid: int, symbol: str) -> None:
    ensure_owner_or_root(ctx, netuid)
    ctx.ensure(symbol in SYMBOLS, "SymbolDoesNotExist")
    ctx.ensure(all(symbol != taken for _, taken in ctx.sub.items("TokenSymbol")), "SymbolAlreadyInUse")
    ctx.sub.put("TokenSymbol", netuid, symbol)
    ctx.emit("SubtensorModule", "SymbolUpdated", {"netuid": netuid, "symbol": symbol})


@call("SubtensorModule", "trigger_epoch")
def trigger_epoch(ctx: Context, netuid: int) -> None:
    """Runs the subnet's next epoch after the admin freeze window instead of at its tempo."""
    who = ctx.signed()
    ensure_owner_or_root(ctx, netuid)
    ctx.ensure(not ctx.sub.get("CommitRevealWeightsEnabled", netuid), "DynamicTempoBlockedByCommitReveal")
    ctx.ensure(not ctx.sub.get("PendingEpochAt", netuid), "EpochTriggerAlreadyPending")
    window = ctx.sub.get("AdminFreezeWindow")
    following = ctx.sub.get("LastEpochBlock", netuid) + ctx.sub.get("Tempo", netuid)
    ctx.ensure(following - ctx.block >= window, "AutoEpochAlreadyImminent")
    fires_at = ctx.block + max(window, 1)
    ctx.sub.put("PendingEpochAt", netuid, fires_at)
    ctx.emit("SubtensorModule", "EpochTriggered", {"netuid": netuid, "by": who, "fires_at": fires_at})


def change_tempo(ctx: Context, netuid: int, tempo: int) -> None:
    """Sets the tempo and begins a new cycle with it."""
    ctx.sub.put("Tempo", netuid, tempo)
    ctx.sub.put("LastEpochBlock", netuid, ctx.block)
    ctx.emit("SubtensorModule", "TempoSet", [netuid, tempo])


@call("SubtensorModule", "set_tempo")
def set_tempo(ctx: Context, netuid: int, tempo: int) -> None:
    ctx.signed()
    ensure_owner_or_root(ctx, netuid)
    ctx.ensure(1 <= tempo <= 50_400, "TempoOutOfBounds")
    change_tempo(ctx, netuid, tempo)


@call("SubtensorModule", "set_activity_cutoff_factor")
def set_activity_cutoff_factor(ctx: Context, netuid: int, factor_milli: int) -> None:
    ensure_owner_or_root(ctx, netuid)
    ctx.ensure(1_000 <= factor_milli <= 50_000, "ActivityCutoffFactorMilliOutOfBounds")
    ctx.sub.put("ActivityCutoffFactorMilli", netuid, factor_milli)
    ctx.emit("SubtensorModule", "ActivityCutoffFactorMilliSet", {"netuid": netuid, "factor_milli": factor_milli})
