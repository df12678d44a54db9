"""What every block does by itself: prices fall, emission accrues, and at its tempo a subnet's epoch pays it out.

The arithmetic is consensus/'s; here it meets the ledger. Order follows the Subtensor's `block_step`. Root dividends
are not paid: where root holds stake, its part of the alpha is recycled, as the Subtensor does while alpha prices
sum to no more than one.
"""

from __future__ import annotations

import logging
from fractions import Fraction

from subnet.localnet.consensus import emission, yuma
from subnet.localnet.consensus import mechanisms as combining
from subnet.localnet.consensus import pool as market
from subnet.localnet.dispatch import Context
from subnet.localnet.ledger import Pallet
from subnet.localnet.pallets import balances, mechanisms, neurons, stake, timelock
from subnet.localnet.schedule import activity_cutoff, should_run

logger = logging.getLogger(__name__)

ROOT_NETUID = 0
PRICE_BITS = 32
"""Fractional bits of the stored moving price."""


def block_step(ctx: Context) -> None:
    netuids = [netuid for netuid, added in ctx.sub.items("NetworksAdded") if added]
    for netuid in netuids:
        _lower_burn(ctx, netuid)
    for netuid in netuids:
        timelock.reveal(ctx, netuid)
    started = [netuid for netuid in netuids if netuid != ROOT_NETUID and _emits(ctx.sub, netuid)]
    tao = _tao_shares(ctx, started)
    for netuid in started:
        _emit(ctx, netuid, tao.get(netuid, 0))
    _run_due(ctx, [netuid for netuid in netuids if netuid != ROOT_NETUID])
    for netuid in started:
        _move_price(ctx, netuid)


def alpha_issuance(sub: Pallet, netuid: int) -> int:
    return sub.get("SubnetAlphaIn", netuid) + sub.get("SubnetAlphaOut", netuid)


def _emits(sub: Pallet, netuid: int) -> bool:
    return (
        sub.get("FirstEmissionBlockNumber", netuid) is not None
        and sub.get("SubtokenEnabled", netuid)
        and sub.get("NetworkRegistrationAllowed", netuid)
    )


def _lower_burn(ctx: Context, netuid: int) -> None:
    low, high = neurons.burn_bounds(ctx.sub, netuid)
    burn = ctx.sub.get("Burn", netuid)
    lowered = market.decay_burn(burn, ctx.sub.get("BurnHalfLife", netuid), low, high)
    if lowered != burn:
        ctx.sub.put("Burn", netuid, lowered)
    if ctx.sub.get("RegistrationsThisBlock", netuid):
        ctx.sub.put("RegistrationsThisBlock", netuid, 0)


def _tao_shares(ctx: Context, started: list[int]) -> dict[int, int]:
    """The block's TAO over the subnets that take part, by moving price; evenly while all those are still zero."""
    enabled = [netuid for netuid in started if ctx.sub.get("SubnetEmissionEnabled", netuid)]
    if not enabled:
        return {}
    total = emission.block_emission(ctx.sub.get("TotalIssuance"))
    prices = [ctx.sub.get("SubnetMovingPrice", netuid)["bits"] for netuid in enabled]
    prices = prices if any(prices) else [1] * len(enabled)
    return dict(zip(enabled, emission.apportion(total, prices), strict=True))


def _emit(ctx: Context, netuid: int, tao: int) -> None:
    sub = ctx.sub
    alpha_out = emission.block_emission(alpha_issuance(sub, netuid))
    root = emission.root_proportion(
        sub.get("SubnetTAO", ROOT_NETUID), sub.get("TaoWeight"), alpha_issuance(sub, netuid)
    )
    _inject(ctx, netuid, tao, int(alpha_out * root))
    sub.put("SubnetAlphaOutEmission", netuid, alpha_out)
    sub.add("SubnetAlphaOut", netuid, alpha_out)
    ctx.ledger.pallet("AlphaAssets").add("TotalAlphaIssuance", netuid, alpha_out)
    cut = sub.get("SubnetOwnerCut") if sub.get("OwnerCutEnabled", netuid) else 0
    accrued = emission.accrue(_pending(sub, netuid), alpha_out, cut, root)
    if accrued.root:
        stake.recycle_alpha(ctx, netuid, accrued.root)
    _store_pending(sub, netuid, accrued)


def _inject(ctx: Context, netuid: int, tao: int, alpha_cap: int) -> None:
    """Adds the subnet's TAO to its pool, with alpha at the pool's price up to a cap; TAO beyond that buys alpha."""
    sub = ctx.sub
    pool = stake.pool(sub, netuid)
    alpha_in = min(int(tao / pool.price), alpha_cap) if pool.price else 0
    tao_in = min(int(alpha_in * pool.price), tao)
    if sub.get("SubnetTaoInEmission", netuid) != tao_in:
        sub.put("SubnetTaoInEmission", netuid, tao_in)
        sub.put("SubnetAlphaInEmission", netuid, alpha_in)
    if not tao:
        return
    account = stake.subnet_account(netuid)
    balances.mint(ctx, account, tao)
    sub.put("SubnetTAO", netuid, pool.tao + tao_in)
    sub.put("SubnetAlphaIn", netuid, pool.alpha + alpha_in)
    sub.add("TotalStake", tao_in)
    ctx.ledger.pallet("AlphaAssets").add("TotalAlphaIssuance", netuid, alpha_in)
    if tao > tao_in:
        bought = stake.buy(ctx, account, netuid, tao - tao_in)
        sub.add("SubnetProtocolAlpha", netuid, bought.received)


def _pending(sub: Pallet, netuid: int) -> emission.Pending:
    return emission.Pending(
        owner=sub.get("PendingOwnerCut", netuid),
        miners=sub.get("PendingServerEmission", netuid),
        validators=sub.get("PendingValidatorEmission", netuid),
    )


def _store_pending(sub: Pallet, netuid: int, pending: emission.Pending) -> None:
    sub.put("PendingOwnerCut", netuid, pending.owner)
    sub.put("PendingServerEmission", netuid, pending.miners)
    sub.put("PendingValidatorEmission", netuid, pending.validators)


def _run_due(ctx: Context, netuids: list[int]) -> None:
    """Runs the epochs that are due, at most so many in a block; the rest wait for the next."""
    sub, ran = ctx.sub, 0
    for netuid in netuids:
        sub.add("BlocksSinceLastStep", netuid, 1)
        if not should_run(sub, netuid, ctx.block):
            continue
        if ran >= sub.get("MaxEpochsPerBlock"):
            sub.put("PendingEpochAt", netuid, ctx.block + 1)
            deferred = {"netuid": netuid, "from_block": ctx.block, "to_block": ctx.block + 1}
            ctx.emit("SubtensorModule", "EpochDeferred", deferred)
            continue
        ran += 1
        if _try(ctx, netuid):
            sub.put("BlocksSinceLastStep", netuid, 0)
        else:
            ctx.emit("SubtensorModule", "EpochSkipped", {"netuid": netuid, "block": ctx.block})
        sub.put("LastEpochBlock", netuid, ctx.block)
        sub.put("PendingEpochAt", netuid, 0)
        sub.add("SubnetEpochIndex", netuid, 1)


def _try(ctx: Context, netuid: int) -> bool:
    """Runs one epoch; a subnet whose parameters consensus cannot work with keeps its emission for the next."""
    announced = len(ctx.events)
    try:
        with ctx.state.transaction():
            pending = _pending(ctx.sub, netuid)
            _store_pending(ctx.sub, netuid, emission.Pending())
            run(ctx, netuid, pending)
    except (ArithmeticError, LookupError, ValueError):
        del ctx.events[announced:]
        logger.exception("the epoch of subnet %d in block %d was skipped", netuid, ctx.block)
        return False
    return True


def run(ctx: Context, netuid: int, pending: emission.Pending) -> None:
    """One epoch: consensus over each mechanism's weights, then `pending` to owner, miners and validators as stake."""
    sub = ctx.sub
    hotkeys = neurons.hotkeys(sub, netuid)
    indices = mechanisms.indices(sub, netuid)
    amounts = combining.split(pending.epoch, sub.get("MechanismEmissionSplit", netuid), len(indices))
    inputs = [_inputs(sub, netuid, mecid, hotkeys, ctx.block, amount) for mecid, amount in enumerate(amounts)]
    results = [yuma.epoch(mechanism) for mechanism in inputs]
    for index, result in zip(indices, results, strict=True):
        _store_mechanism(ctx, index, result)
    together = combining.combine(results, amounts)
    _store_subnet(sub, netuid, together)
    payout = emission.distribute(
        pending,
        together.server_emission,
        together.validator_emission,
        owner_uids=neurons.owned_uids(sub, netuid),
        alpha_stake=inputs[0].alpha_stake,
        root_stake=inputs[0].root_stake,
        tao_weight=inputs[0].tao_weight,
    )
    _pay(ctx, netuid, hotkeys, payout)


def _inputs(sub: Pallet, netuid: int, mecid: int, hotkeys: list[str], block: int, amount: int) -> yuma.EpochInputs:
    uids, index = range(len(hotkeys)), mechanisms.index(netuid, mecid)
    return yuma.EpochInputs(
        alpha_stake=[stake.on_hotkey(sub, hotkey, netuid) for hotkey in hotkeys],
        root_stake=[stake.on_hotkey(sub, hotkey, ROOT_NETUID) for hotkey in hotkeys],
        last_update=mechanisms.last_update(sub, netuid, mecid),
        registered_at=[sub.get("BlockAtRegistration", netuid, uid) for uid in uids],
        weights=[sub.get("Weights", index, uid) for uid in uids],
        bonds=[sub.get("Bonds", index, uid) for uid in uids],
        validator_permit=sub.get("ValidatorPermit", netuid),
        current_block=block,
        tempo=sub.get("Tempo", netuid),
        rao_emission=amount,
        last_epoch_block=sub.get("LastEpochBlock", netuid) if sub.get("SubnetEpochIndex", netuid) else 0,
        tao_weight=sub.get("TaoWeight"),
        owner_uid=neurons.owner_uid(sub, netuid),
        activity_cutoff=activity_cutoff(sub, netuid),
        kappa=sub.get("Kappa", netuid),
        bonds_moving_average=sub.get("BondsMovingAverage", netuid),
        bonds_penalty=sub.get("BondsPenalty", netuid),
        max_validators=sub.get("MaxAllowedValidators", netuid),
        stake_threshold=sub.get("StakeThreshold"),
        yuma3=sub.get("Yuma3On", netuid),
    )


def _store_mechanism(ctx: Context, index: int, result: yuma.EpochResult) -> None:
    sub = ctx.sub
    sub.put("Incentive", index, result.incentive.tolist())
    for uid, row in enumerate(result.bonds):
        if row:
            sub.put("Bonds", index, uid, [(int(target), int(bond)) for target, bond in row])
        elif sub.get("Bonds", index, uid):
            sub.remove("Bonds", index, uid)
    earned = {"netuid": index, "emissions": result.server_emission.tolist()}
    ctx.emit("SubtensorModule", "IncentiveAlphaEmittedToMiners", earned)


def _store_subnet(sub: Pallet, netuid: int, together: combining.Combined) -> None:
    for item, column in {
        "Active": together.active,
        "Emission": together.emission,
        "Consensus": together.consensus,
        "Dividends": together.dividends,
        "ValidatorTrust": together.validator_trust,
        "ValidatorPermit": together.validator_permit,
    }.items():
        sub.put(item, netuid, column)


def _pay(ctx: Context, netuid: int, hotkeys: list[str], payout: emission.Payout) -> None:
    sub = ctx.sub
    stake.credit(ctx, sub.get("SubnetOwnerHotkey", netuid), sub.get("SubnetOwner", netuid), netuid, payout.owner)
    sub.clear("AlphaDividendsPerSubnet", netuid)
    for hotkey, reward, dividend in zip(hotkeys, payout.miners, payout.validators, strict=True):
        owner = sub.get("Owner", hotkey)
        stake.credit(ctx, hotkey, owner, netuid, reward)
        if not dividend:
            continue
        take, held = sub.get("Delegates", hotkey), dict(stake.holders(sub, hotkey, netuid))
        for coldkey, amount in emission.split_dividends(dividend, owner, held, take).items():
            stake.credit(ctx, hotkey, coldkey, netuid, amount)
        sub.put("AlphaDividendsPerSubnet", netuid, hotkey, dividend - dividend * take // emission.U16_MAX)
    if payout.withheld and sub.get("RecycleOrBurn", netuid) == "Recycle":
        stake.recycle_alpha(ctx, netuid, payout.withheld)
    elif payout.withheld:
        stake.burn_alpha(ctx, netuid, payout.withheld)
    if payout.unclaimed:
        stake.burn_alpha(ctx, netuid, payout.unclaimed)


def _move_price(ctx: Context, netuid: int) -> None:
    """The exponential moving average of the price, capped at 1 TAO, slower the younger the subnet."""
    sub = ctx.sub
    age = ctx.block - (sub.get("FirstEmissionBlockNumber", netuid) - 1)
    rate = Fraction(sub.get("SubnetMovingAlpha")["bits"], 1 << PRICE_BITS)
    rate *= Fraction(age, age + sub.get("EMAPriceHalvingBlocks", netuid))
    price = min(stake.pool(sub, netuid).price, Fraction(1))
    moving = sub.get("SubnetMovingPrice", netuid)["bits"]
    sub.put("SubnetMovingPrice", netuid, {"bits": int(rate * price * (1 << PRICE_BITS) + (1 - rate) * moving)})
