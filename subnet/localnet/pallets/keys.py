"""Hotkeys and the coldkeys that own them, and what a hotkey takes of its stakers' dividends."""

from __future__ import annotations

from subnet.localnet.dispatch import Context, call


def exists(ctx: Context, hotkey: str) -> bool:
    """Whether the hotkey belongs to anybody yet."""
    return ctx.sub.has("Owner", hotkey)


def owns(ctx: Context, coldkey: str, hotkey: str) -> bool:
    return exists(ctx, hotkey) and ctx.sub.get("Owner", hotkey) == coldkey


def associate(ctx: Context, coldkey: str, hotkey: str) -> None:
    """Makes an unowned hotkey the coldkey's; leaves an owned one as it is."""
    if not exists(ctx, hotkey):
        ctx.sub.put("Owner", hotkey, coldkey)
        _append(ctx, "OwnedHotkeys", coldkey, hotkey)
        _append(ctx, "StakingHotkeys", coldkey, hotkey)


def note_staking(ctx: Context, coldkey: str, hotkey: str) -> None:
    """Remembers that the coldkey has stake on the hotkey."""
    _append(ctx, "StakingHotkeys", coldkey, hotkey)


def _append(ctx: Context, item: str, coldkey: str, hotkey: str) -> None:
    hotkeys = ctx.sub.get(item, coldkey)
    if hotkey not in hotkeys:
        ctx.sub.put(item, coldkey, [*hotkeys, hotkey])


@call("SubtensorModule", "try_associate_hotkey")
def try_associate_hotkey(ctx: Context, hotkey: str) -> None:
    associate(ctx, ctx.signed(), hotkey)


def _owned(ctx: Context, hotkey: str) -> str:
    coldkey = ctx.signed()
    ctx.ensure(exists(ctx, hotkey), "HotKeyAccountNotExists")
    ctx.ensure(owns(ctx, coldkey, hotkey), "NonAssociatedColdKey")
    return coldkey


@call("SubtensorModule", "increase_take", free=True)
def increase_take(ctx: Context, hotkey: str, take: int) -> None:
    coldkey = _owned(ctx, hotkey)
    ctx.ensure(take > ctx.sub.get("Delegates", hotkey), "DelegateTakeTooLow")
    ctx.ensure(take <= ctx.sub.get("MaxDelegateTake"), "DelegateTakeTooHigh")
    last, limit = ctx.sub.get("LastTxBlockDelegateTake", hotkey), ctx.sub.get("TxDelegateTakeRateLimit")
    ctx.ensure(not (limit and last) or ctx.block - last > limit, "DelegateTxRateLimitExceeded")
    ctx.sub.put("LastTxBlockDelegateTake", hotkey, ctx.block)
    ctx.sub.put("Delegates", hotkey, take)
    ctx.emit("SubtensorModule", "TakeIncreased", [coldkey, hotkey, take])


@call("SubtensorModule", "decrease_take", free=True)
def decrease_take(ctx: Context, hotkey: str, take: int) -> None:
    coldkey = _owned(ctx, hotkey)
    ctx.ensure(take < ctx.sub.get("Delegates", hotkey), "DelegateTakeTooHigh")
    ctx.ensure(take >= ctx.sub.get("MinDelegateTake"), "DelegateTakeTooLow")
    ctx.sub.put("LastTxBlockDelegateTake", hotkey, ctx.block)
    ctx.sub.put("Delegates", hotkey, take)
    ctx.emit("SubtensorModule", "TakeDecreased", [coldkey, hotkey, take])


@call("SubtensorModule", "set_identity")
def set_identity(
    ctx: Context, name: str, url: str, github_repo: str, image: str, discord: str, description: str, additional: str
) -> None:
    coldkey = ctx.signed()
    identity = {
        "name": name,
        "url": url,
        "github_repo": github_repo,
        "image": image,
        "discord": discord,
        "description": description,
        "additional": additional,
    }
    owned = ctx.sub.get("OwnedHotkeys", coldkey)
    member = any(True for hotkey in owned for _ in ctx.sub.items("IsNetworkMember", hotkey))
    ctx.ensure(member, "HotKeyNotRegisteredInNetwork")
    ctx.ensure(all(len(text.encode()) <= 1024 for text in identity.values()), "InvalidIdentity")
    ctx.sub.put("IdentitiesV2", coldkey, identity)
    ctx.emit("SubtensorModule", "ChainIdentitySet", coldkey)
