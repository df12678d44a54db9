"""Stake: who holds how much alpha on which hotkey, the pool it is bought from, and the calls that move it.

Amounts are rao. On root (netuid 0) one alpha is one TAO and there is no pool. Alpha is kept per (hotkey, coldkey,
subnet); the runtime's share pools give the same amounts up to rounding. No locks, no collateral, no children:
nothing here makes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from bittensor_core import ss58_encode

from subnet.localnet.consensus import pool as market
from subnet.localnet.dispatch import Context, call
from subnet.localnet.ledger import Pallet
from subnet.localnet.metadata import PALLETS, SS58_PREFIX
from subnet.localnet.pallets import balances, keys

ROOT_NETUID = 0
MIN_STAKE = 2_000_000
"""rao a stake or a partial unstake must come to."""
RAO = 1_000_000_000


def subnet_account(netuid: int) -> str:
    """The account that holds the TAO of a subnet's pool."""
    return ss58_encode((b"modlsubtensr" + netuid.to_bytes(2, "little")).ljust(32, b"\0"), SS58_PREFIX)


def pool(sub: Pallet, netuid: int) -> market.Pool:
    return market.Pool(tao=sub.get("SubnetTAO", netuid), alpha=sub.get("SubnetAlphaIn", netuid))


def price_rao(sub: Pallet, netuid: int) -> int:
    """rao of TAO per alpha."""
    return RAO if netuid == ROOT_NETUID else pool(sub, netuid).price_rao


def held(sub: Pallet, hotkey: str, coldkey: str, netuid: int) -> int:
    share = sub.get("AlphaV2", hotkey, coldkey, netuid)
    return share["mantissa"] * 10 ** share["exponent"]


def on_hotkey(sub: Pallet, hotkey: str, netuid: int) -> int:
    """All coldkeys' stake together."""
    return sub.get("TotalHotkeyAlpha", hotkey, netuid)


def holders(sub: Pallet, hotkey: str, netuid: int) -> Iterator[tuple[str, int]]:
    """(coldkey, rao) of everybody with stake on the hotkey in this subnet."""
    for (coldkey, other), share in sub.items("AlphaV2", hotkey):
        if other == netuid:
            yield coldkey, share["mantissa"]


def credit(ctx: Context, hotkey: str, coldkey: str, netuid: int, amount: int) -> None:
    """Adds alpha that already exists to a coldkey's stake."""
    if amount:
        keys.note_staking(ctx, coldkey, hotkey)
        _change(ctx, hotkey, coldkey, netuid, amount)


def debit(ctx: Context, hotkey: str, coldkey: str, netuid: int, amount: int) -> None:
    """Takes alpha from a coldkey's stake; NotEnoughStakeToWithdraw when it has less."""
    ctx.ensure(held(ctx.sub, hotkey, coldkey, netuid) >= amount, "NotEnoughStakeToWithdraw")
    _change(ctx, hotkey, coldkey, netuid, -amount)


def _change(ctx: Context, hotkey: str, coldkey: str, netuid: int, amount: int) -> None:
    after = held(ctx.sub, hotkey, coldkey, netuid) + amount
    if after:
        ctx.sub.put("AlphaV2", hotkey, coldkey, netuid, {"mantissa": after, "exponent": 0})
    else:
        ctx.sub.remove("AlphaV2", hotkey, coldkey, netuid)
    ctx.sub.add("TotalHotkeyAlpha", hotkey, netuid, amount)
    ctx.sub.add("TotalAlphaStaked", netuid, amount)


def buy(
    ctx: Context, coldkey: str, netuid: int, tao: int, limit: int | None = None, partial: bool = False
) -> market.Swap:
    """Pays TAO into a subnet's pool for alpha, then outstanding but not yet anybody's stake. The fee is burned."""
    swap = _swapped(ctx, netuid, tao, limit, partial, buying=True)
    balances.burn(ctx, coldkey, swap.fee)
    balances.move(ctx, coldkey, subnet_account(netuid), swap.paid)
    _settle(ctx, netuid, swap, tao=swap.paid, alpha=swap.received)
    return swap


def sell(
    ctx: Context, coldkey: str, netuid: int, alpha: int, limit: int | None = None, partial: bool = False
) -> market.Swap:
    """Pays outstanding alpha into a subnet's pool for TAO. The fee is burned."""
    swap = _swapped(ctx, netuid, alpha, limit, partial, buying=False)
    balances.move(ctx, subnet_account(netuid), coldkey, swap.received)
    _settle(ctx, netuid, swap, tao=-swap.received, alpha=-swap.paid)
    burn_alpha(ctx, netuid, swap.fee)
    return swap


def burn_alpha(ctx: Context, netuid: int, amount: int) -> None:
    """Alpha nobody can have any more; it stays issued."""
    ctx.ledger.pallet("AlphaAssets").add("AlphaBurned", netuid, amount)


def recycle_alpha(ctx: Context, netuid: int, amount: int) -> None:
    """Alpha that was never issued after all."""
    ctx.sub.add("SubnetAlphaOut", netuid, -amount)
    ctx.ledger.pallet("AlphaAssets").add("TotalAlphaIssuance", netuid, -amount)
    ctx.ledger.pallet("AlphaAssets").add("AlphaRecycled", netuid, amount)


def _swapped(ctx: Context, netuid: int, amount: int, limit: int | None, partial: bool, *, buying: bool) -> market.Swap:
    if netuid == ROOT_NETUID:
        within = limit is None or (limit >= RAO if buying else limit <= RAO)
        ctx.ensure(within or partial, "SlippageTooHigh")
        moved = amount if within else 0
        return market.Swap(market.Pool(0, 0), paid=moved, fee=0, received=moved, refund=amount - moved)
    trade = market.stake if buying else market.unstake
    rate = ctx.ledger.get("Swap", "FeeRate", netuid)
    try:
        return trade(pool(ctx.sub, netuid), amount, limit_price=limit, partial=partial, fee_rate=rate)
    except market.PoolError as error:
        if error.name == "SlippageTooHigh":
            ctx.ensure(False, "SlippageTooHigh")
        elif error.name in PALLETS["Swap"].errors:
            ctx.ensure(False, error.name, "Swap")
        raise


def _settle(ctx: Context, netuid: int, swap: market.Swap, *, tao: int, alpha: int) -> None:
    if netuid == ROOT_NETUID:
        ctx.sub.add("SubnetTAO", netuid, tao)
    else:
        ctx.sub.put("SubnetTAO", netuid, swap.pool.tao)
        ctx.sub.put("SubnetAlphaIn", netuid, swap.pool.alpha)
    ctx.sub.add("SubnetAlphaOut", netuid, alpha)
    ctx.sub.add("SubnetVolume", netuid, abs(tao))
    ctx.sub.add("TotalStake", tao)


def _tradable(ctx: Context, netuid: int) -> None:
    ctx.ensure(ctx.sub.get("NetworksAdded", netuid), "SubnetNotExists")
    ctx.ensure(ctx.sub.get("SubtokenEnabled", netuid), "SubtokenDisabled")


def stake_tao(
    ctx: Context, hotkey: str, netuid: int, tao: int, limit: int | None = None, partial: bool = False
) -> None:
    coldkey = ctx.signed()
    _tradable(ctx, netuid)
    ctx.ensure(tao >= MIN_STAKE, "AmountTooLow")
    ctx.ensure(balances.free(ctx.ledger, coldkey) >= tao, "NotEnoughBalanceToStake")
    ctx.ensure(keys.exists(ctx, hotkey), "HotKeyAccountNotExists")
    swap = buy(ctx, coldkey, netuid, tao, limit, partial)
    ctx.ensure(swap.received, "AmountTooLow")
    credit(ctx, hotkey, coldkey, netuid, swap.received)
    paid = swap.paid + swap.fee
    ctx.emit("SubtensorModule", "StakeAdded", [coldkey, hotkey, paid, swap.received, netuid, swap.fee])


def unstake_alpha(
    ctx: Context, hotkey: str, netuid: int, alpha: int, limit: int | None = None, partial: bool = False
) -> None:
    coldkey = ctx.signed()
    _tradable(ctx, netuid)
    ctx.ensure(keys.exists(ctx, hotkey), "HotKeyAccountNotExists")
    available = held(ctx.sub, hotkey, coldkey, netuid)
    ctx.ensure(available, "NotEnoughStakeToWithdraw")
    alpha = min(alpha, available)
    ctx.ensure(alpha, "AmountTooLow")
    swap = sell(ctx, coldkey, netuid, alpha, limit, partial)
    used = swap.paid + swap.fee
    ctx.ensure(swap.received >= MIN_STAKE or used == available, "AmountTooLow")
    debit(ctx, hotkey, coldkey, netuid, used)
    ctx.emit("SubtensorModule", "StakeRemoved", [coldkey, hotkey, swap.received, used, netuid, swap.fee])


@call("SubtensorModule", "add_stake")
def add_stake(ctx: Context, hotkey: str, netuid: int, amount_staked: int) -> None:
    stake_tao(ctx, hotkey, netuid, amount_staked)


@call("SubtensorModule", "add_stake_limit")
def add_stake_limit(
    ctx: Context, hotkey: str, netuid: int, amount_staked: int, limit_price: int, allow_partial: bool
) -> None:
    stake_tao(ctx, hotkey, netuid, amount_staked, limit_price, allow_partial)


@call("SubtensorModule", "remove_stake")
def remove_stake(ctx: Context, hotkey: str, netuid: int, amount_unstaked: int) -> None:
    unstake_alpha(ctx, hotkey, netuid, amount_unstaked)


@call("SubtensorModule", "remove_stake_limit")
def remove_stake_limit(
    ctx: Context, hotkey: str, netuid: int, amount_unstaked: int, limit_price: int, allow_partial: bool
) -> None:
    unstake_alpha(ctx, hotkey, netuid, amount_unstaked, limit_price, allow_partial)


@call("SubtensorModule", "remove_stake_full_limit")
def remove_stake_full_limit(ctx: Context, hotkey: str, netuid: int, limit_price: int | None) -> None:
    unstake_alpha(ctx, hotkey, netuid, held(ctx.sub, hotkey, ctx.signed(), netuid), limit_price)


@call("SubtensorModule", "unstake_all")
def unstake_all(ctx: Context, hotkey: str) -> None:
    """Sells what can be sold on every subnet, root included."""
    coldkey = ctx.signed()
    for (owner, netuid), _ in list(ctx.sub.items("AlphaV2", hotkey)):
        if owner == coldkey and ctx.sub.get("SubtokenEnabled", netuid):
            unstake_alpha(ctx, hotkey, netuid, held(ctx.sub, hotkey, coldkey, netuid))


def _move(
    ctx: Context, source: tuple[str, str, int], dest: tuple[str, str, int], alpha: int,
    limit: int | None = None, partial: bool = False,
) -> int:  # fmt: skip
    """Moves alpha from one (hotkey, coldkey, netuid) to another, through both pools if the subnets differ.

    Returns its worth in rao of TAO.
    """
    hotkey, coldkey, netuid = source
    to_hotkey, to_coldkey, to_netuid = dest
    _tradable(ctx, netuid)
    _tradable(ctx, to_netuid)
    for key in (hotkey, to_hotkey):
        ctx.ensure(keys.exists(ctx, key), "HotKeyAccountNotExists")
    ctx.ensure(0 < alpha <= held(ctx.sub, hotkey, coldkey, netuid), "NotEnoughStakeToWithdraw")
    if netuid == to_netuid:
        debit(ctx, hotkey, coldkey, netuid, alpha)
        credit(ctx, to_hotkey, to_coldkey, netuid, alpha)
        return alpha * price_rao(ctx.sub, netuid) // RAO
    # The runtime bounds the ratio of the two prices; the price sold at is the part of it that this swap decides.
    ratio = None if limit is None else limit * price_rao(ctx.sub, to_netuid) // RAO
    sold = sell(ctx, coldkey, netuid, alpha, ratio, partial)
    debit(ctx, hotkey, coldkey, netuid, sold.paid + sold.fee)
    ctx.ensure(sold.received >= MIN_STAKE, "AmountTooLow")
    bought = buy(ctx, coldkey, to_netuid, sold.received)
    credit(ctx, to_hotkey, to_coldkey, to_netuid, bought.received)
    return sold.received


@call("SubtensorModule", "move_stake")
def move_stake(
    ctx: Context,
    origin_hotkey: str,
    destination_hotkey: str,
    origin_netuid: int,
    destination_netuid: int,
    alpha_amount: int,
) -> None:
    who = ctx.signed()
    tao = _move(ctx, (origin_hotkey, who, origin_netuid), (destination_hotkey, who, destination_netuid), alpha_amount)
    ctx.emit(
        "SubtensorModule",
        "StakeMoved",
        [who, origin_hotkey, origin_netuid, destination_hotkey, destination_netuid, tao],
    )


@call("SubtensorModule", "transfer_stake")
def transfer_stake(
    ctx: Context, destination_coldkey: str, hotkey: str, origin_netuid: int, destination_netuid: int, alpha_amount: int
) -> None:
    who = ctx.signed()
    for netuid in (origin_netuid, destination_netuid):
        ctx.ensure(ctx.sub.get("TransferToggle", netuid), "TransferDisallowed")
    tao = _move(ctx, (hotkey, who, origin_netuid), (hotkey, destination_coldkey, destination_netuid), alpha_amount)
    fields = [who, destination_coldkey, hotkey, origin_netuid, destination_netuid, tao]
    ctx.emit("SubtensorModule", "StakeTransferred", fields)


@call("SubtensorModule", "swap_stake")
def swap_stake(ctx: Context, hotkey: str, origin_netuid: int, destination_netuid: int, alpha_amount: int) -> None:
    swap_stake_limit(ctx, hotkey, origin_netuid, destination_netuid, alpha_amount, None, False)


@call("SubtensorModule", "swap_stake_limit")
def swap_stake_limit(
    ctx: Context, hotkey: str, origin_netuid: int, destination_netuid: int, alpha_amount: int,
    limit_price: int | None, allow_partial: bool,
) -> None:  # fmt: skip
    who = ctx.signed()
    ctx.ensure(origin_netuid != destination_netuid, "SameNetuid")
    source, dest = (hotkey, who, origin_netuid), (hotkey, who, destination_netuid)
    tao = _move(ctx, source, dest, alpha_amount, limit_price, allow_partial)
    ctx.emit("SubtensorModule", "StakeSwapped", [who, hotkey, origin_netuid, destination_netuid, tao])


@call("SubtensorModule", "burn_alpha")
def burn_own_alpha(ctx: Context, hotkey: str, amount: int, netuid: int) -> None:
    coldkey = ctx.signed()
    amount = _withdrawn(ctx, hotkey, coldkey, netuid, amount)
    burn_alpha(ctx, netuid, amount)
    ctx.emit("SubtensorModule", "AlphaBurned", [coldkey, hotkey, amount, netuid])


@call("SubtensorModule", "recycle_alpha")
def recycle_own_alpha(ctx: Context, hotkey: str, amount: int, netuid: int) -> None:
    coldkey = ctx.signed()
    amount = _withdrawn(ctx, hotkey, coldkey, netuid, amount)
    recycle_alpha(ctx, netuid, amount)
    ctx.emit("SubtensorModule", "AlphaRecycled", [coldkey, hotkey, amount, netuid])


def _withdrawn(ctx: Context, hotkey: str, coldkey: str, netuid: int, amount: int) -> int:
    ctx.ensure(netuid != ROOT_NETUID, "CannotBurnOrRecycleOnRootSubnet")
    _tradable(ctx, netuid)
    amount = min(amount, held(ctx.sub, hotkey, coldkey, netuid))
    ctx.ensure(amount, "NotEnoughStakeToWithdraw")
    debit(ctx, hotkey, coldkey, netuid, amount)
    return amount
